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

int nv_guardian_start(const char *path, struct nv_journal *journal, pid_t *pid, int *pidfd)
{
	int own, fd, waited;
	pid_t child;

	own = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (own < 0)
		return -errno;
	__atomic_store_n(&journal->page->guarded, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&journal->page->farewell, 0, __ATOMIC_RELEASE);
	child = fork();
	if (child < 0) {
		fd = -errno;
		close(own);
		return fd;
	}
	if (!child) {
		char j[16], d[16];

		nv_guardian_ignore_signals();
		setsid(); /* a signal to the daemon's group is not meant for it */
		fcntl(journal->fd, F_SETFD, 0);
		fcntl(own, F_SETFD, 0);
		snprintf(j, sizeof(j), "%d", journal->fd);
		snprintf(d, sizeof(d), "%d", own);
		execlp(path, "rtxg-guardian", j, d, (char *)NULL);
		_exit(127);
	}
	close(own);
	fd = (int)syscall(SYS_pidfd_open, child, 0);
	if (fd < 0) {
		fd = -errno;
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		return fd;
	}
	for (waited = 0; waited < 1000; waited++) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int32_t guarded =
			(int32_t)__atomic_load_n(&journal->page->guarded, __ATOMIC_ACQUIRE);

		if (guarded == 1) {
			*pid = child;
			*pidfd = fd;
			return 0;
		}
		if (guarded < 0 || poll(&p, 1, 10) > 0) {
			waitpid(child, NULL, 0);
			close(fd);
			return guarded < 0 ? guarded : -ENOENT;
		}
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(fd);
	return -ETIMEDOUT;
}

void nv_guardian_stop(struct nv_journal *journal, pid_t pid, int pidfd)
{
	__atomic_store_n(&journal->page->farewell, 1, __ATOMIC_RELEASE);
	if (pid > 0) {
		kill(pid, SIGTERM);
		waitpid(pid, NULL, 0);
	}
	if (pidfd >= 0)
		close(pidfd);
}
