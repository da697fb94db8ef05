// SPDX-License-Identifier: MIT
/*
 * others.c - the lever's system calls on the processes of others. Those that such a process may
 * hold up are made with patience of a bounded length (patience.c): a program that executes another
 * one, and does not get on with it, may not stop the turns of all.
 *
 * May not: be used by librtxg, which looks at no other process.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "others.h"
#include "patience.h"

#define DESCRIPTORS 1024 /* of one process that are looked at */

struct getfd {
	int pidfd, fd, result;
};

struct listing {
	int pid, count, fds[DESCRIPTORS];
};

/* 0: it does not say. */
static pid_t pid_of(int pidfd)
{
	char path[64], line[64];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	if (f)
		fclose(f);
	return pid > 0 ? pid : 0;
}

static void get(void *memory)
{
	struct getfd *g = memory;

	g->result = nv_sys_linux.pidfd_getfd(NULL, g->pidfd, g->fd);
	close(g->pidfd);
}

static void give_up(void *memory)
{
	const struct getfd *g = memory;

	if (g->result >= 0)
		close(g->result);
}

/* The call has a descriptor of its own: that of the caller may be closed before it is made. */
static int patient_getfd(void *ctx, int pidfd, int fd)
{
	static const struct patience_call call = { .make = get, .undo = give_up };
	struct getfd g = { .pidfd = pidfd, .fd = fd };
	int error;

	g.pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
	if (g.pidfd < 0)
		return -errno;
	error = rtx_lib_patience_of(pid_of(pidfd), &call, &g, sizeof(g));
	if (error && error != -ETIMEDOUT)
		close(g.pidfd);
	return error ? error : g.result;
}

static void list(void *memory)
{
	struct listing *l = memory;

	l->count = nv_sys_linux.ctl_fds(NULL, l->pid, l->fds, DESCRIPTORS);
}

static int patient_ctl_fds(void *ctx, int pid, int *fds, int cap)
{
	static const struct patience_call call = { .make = list };
	struct listing l = { .pid = pid };
	int error = rtx_lib_patience_of(pid, &call, &l, sizeof(l));

	for (int i = 0; !error && i < l.count && i < cap && i < DESCRIPTORS; i++)
		fds[i] = l.fds[i];
	return error ? error : l.count;
}

const struct nv_sys *nv_sys_patient(void)
{
	static struct nv_sys sys;

	sys = nv_sys_linux;
	sys.pidfd_getfd = patient_getfd;
	sys.ctl_fds = patient_ctl_fds;
	return &sys;
}
