// SPDX-License-Identifier: MIT
/*
 * descriptors_of PID - looks for the driver's descriptors of a process, and takes one, as the lever
 * does. Prints how many it has, and what came of taking its standard input: 0 or an errno. Twice.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "others.h"

int main(int argc, char **argv)
{
	const struct nv_sys *sys = nv_sys_patient();
	int pid = argc == 2 ? atoi(argv[1]) : 0, pidfd = sys->pidfd_open(sys->ctx, pid), fds[8];

	if (pidfd < 0) {
		fprintf(stderr, "usage: descriptors_of PID, of a process that is there\n");
		return 1;
	}
	for (int i = 0; i < 2; i++) {
		int count = sys->ctl_fds(sys->ctx, pid, fds, 8);
		int fd = sys->pidfd_getfd(sys->ctx, pidfd, 0);

		printf("%d %d\n", count, fd < 0 ? -fd : 0);
		fflush(stdout);
		if (fd >= 0)
			close(fd);
	}
	return 0;
}
