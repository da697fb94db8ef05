/* SPDX-License-Identifier: MIT */
/*
 * guardian.h - starting the guardian from the daemon's side.
 */
#ifndef RTXG_NV_GUARDIAN_H
#define RTXG_NV_GUARDIAN_H

#include <signal.h>
#include <sys/types.h>
#include "journal.h"
#include "lever_nvidia.h"

/*
 * Starts the program `path` with the journal, waits until it has its own client of the driver (at
 * most 10 s). *pidfd is readable once the guardian has ended. -ETIMEDOUT, or the guardian's own
 * error. ops: of the lever's host, which may start it.
 */
int nv_guardian_start(const struct lever_nvidia_ops *ops, const char *path,
		      struct nv_journal *journal, pid_t *pid, int *pidfd);
/* Tells it that its daemon ends in order, and waits for it. */
void nv_guardian_stop(struct nv_journal *journal, pid_t pid, int pidfd);

/*
 * What a service manager sends to a whole group or control group (ABRT: its watchdog) is meant for
 * the daemon. The guardian ends by its own rule, when the daemon has gone and everything is
 * resumed. Faults of its own still end it.
 */
static inline void nv_guardian_ignore_signals(void)
{
	static const int ignored[] = { SIGTERM, SIGINT,	 SIGHUP,  SIGQUIT, SIGABRT, SIGPIPE,
				       SIGUSR1, SIGUSR2, SIGALRM, SIGPROF, SIGXCPU, SIGVTALRM,
				       SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU, SIGIO,   SIGPWR };

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	for (int s = SIGRTMIN; s <= SIGRTMAX; s++)
		signal(s, SIG_IGN);
}

#endif
