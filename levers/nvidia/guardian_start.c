// SPDX-License-Identifier: MIT
/*
 * nv_guardian_start.c - the daemon's side of the guardian: fork, exec, wait until it stands.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "guardian.h"

/*
 * What the daemon has open ends with its last thread that shares it, and then the other end of this
 * pipe says so. Its process may stay: a thread with files of its own waits for a user's file, and
 * no signal ends that. -1: there is none.
 */
static int end_of_daemon(void)
{
	static int guardian_pipe[2] = { -1, -1 };

	if (guardian_pipe[0] < 0 && pipe2(guardian_pipe, O_CLOEXEC))
		return -1;
	return guardian_pipe[0];
}

/* Its pidfd, or a negative errno. `daemon`: hangs up when the daemon ends. */
static int start_by_fork(const char *path, int journal, int daemon, pid_t *pid)
{
	int fd;

	*pid = fork();
	if (*pid < 0)
		return -errno;
	if (!*pid) {
		char j[16], d[16];

		nv_guardian_ignore_signals();
		setsid(); /* a signal to the daemon's group is not meant for it */
		fcntl(journal, F_SETFD, 0);
		fcntl(daemon, F_SETFD, 0);
		snprintf(j, sizeof(j), "%d", journal);
		snprintf(d, sizeof(d), "%d", daemon);
		execlp(path, "rtxg-guardian", j, d, (char *)NULL);
		_exit(127);
	}
	fd = (int)syscall(SYS_pidfd_open, *pid, 0);
	if (fd < 0) {
		fd = -errno;
		kill(*pid, SIGKILL);
		waitpid(*pid, NULL, 0);
	}
	return fd;
}

/* Waits for its end. It may be a child, and else has another parent, which reaps it. */
static void await(pid_t pid, int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	waitpid(pid, NULL, WNOHANG);
}

int nv_guardian_start(const struct lever_nvidia_ops *ops, const char *path,
		      struct nv_journal *journal, pid_t *pid, int *pidfd)
{
	static const char *const words[] = { "rtxg-guardian", "3", "4", NULL };
	int own = end_of_daemon(), fd, waited;
	pid_t process;

	if (own < 0)
		return -errno;
	__atomic_store_n(&journal->page->guarded, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&journal->page->farewell, 0, __ATOMIC_RELEASE);
	if (ops->start_program)
		fd = ops->start_program(ops->ctx, path, words, (int[]){ journal->fd, own },
					&process);
	else
		fd = start_by_fork(path, journal->fd, own, &process);
	if (fd < 0)
		return fd;
	for (waited = 0; waited < 1000; waited++) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		/* What it says comes before its end: so this is asked first. */
		bool ended = poll(&p, 1, waited ? 10 : 1) > 0;
		int32_t guarded =
			(int32_t)__atomic_load_n(&journal->page->guarded, __ATOMIC_ACQUIRE);

		if (guarded == 1) {
			*pid = process;
			*pidfd = fd;
			return 0;
		}
		if (guarded < 0 || ended) {
			await(process, fd);
			close(fd);
			return guarded < 0 ? guarded : -ENOENT;
		}
	}
	syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0u);
	await(process, fd);
	close(fd);
	return -ETIMEDOUT;
}

void nv_guardian_stop(struct nv_journal *journal, pid_t pid, int pidfd)
{
	__atomic_store_n(&journal->page->farewell, 1, __ATOMIC_RELEASE);
	if (pidfd < 0)
		return;
	syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0u);
	await(pid, pidfd);
	close(pidfd);
}
