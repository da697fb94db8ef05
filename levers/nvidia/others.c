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
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "others.h"
#include "patience.h"

#define DESCRIPTORS  1024 /* of one process that are looked at */
#define NVIDIA_MAJOR 195u /* of the driver's device files; the kernel's list of devices names it */

struct getfd {
	int pid, fd, result;
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

/* What the kernel knows of it: a file system of the user's own is not asked. */
static bool is_of_driver(int fd)
{
	int flags = (int)syscall(SYS_fcntl, fd, F_GETFL);
	struct statx st;

	return flags >= 0 && !(flags & O_PATH) &&
	       !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) &&
	       S_ISCHR(st.stx_mode) && st.stx_rdev_major == NVIDIA_MAJOR;
}

static void get(void *memory)
{
	struct getfd *g = memory;
	int pidfd = nv_sys_linux.pidfd_open(NULL, g->pid);

	g->result = pidfd;
	if (pidfd < 0)
		return;
	g->result = nv_sys_linux.pidfd_getfd(NULL, pidfd, g->fd);
	syscall(SYS_close, pidfd);
	/* The program may have put any file there, also one that does not close. */
	if (g->result >= 0 && !is_of_driver(g->result)) {
		syscall(SYS_close, g->result);
		g->result = -EBADF;
	}
}

static void give_up(void *memory)
{
	const struct getfd *g = memory;

	if (g->result >= 0)
		syscall(SYS_close, g->result);
}

static int *result_of(void *memory)
{
	return &((struct getfd *)memory)->result;
}

/* The call has no descriptors of ours, so that it names the process by its number. */
static int patient_getfd(void *ctx, int pidfd, int fd)
{
	static const struct patience_call call = { .make = get,
						   .undo = give_up,
						   .gives = result_of };
	struct getfd g = { .pid = pid_of(pidfd), .fd = fd };
	int error = rtx_lib_patience_of(g.pid, &call, &g, sizeof(g));

	if (error || g.result < 0)
		return error ? error : g.result;
	/* While it is not reaped, no other process has its number. */
	if (!syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0u) || errno != ESRCH)
		return g.result;
	close(g.result);
	return -ESRCH;
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
