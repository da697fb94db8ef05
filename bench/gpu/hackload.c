// SPDX-License-Identifier: MIT
/*
 * hackload - a CPU load in the manner of hackbench: groups of senders and receivers that pass small
 * messages through sockets, so that the scheduler has many runnable tasks and no CPU is idle. For
 * machines without rt-tests.
 *
 *   hackload GROUPS SECONDS     each group: 20 senders, 20 receivers
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIRS	20
#define MESSAGE 100

static void pass(int from, int to)
{
	char data[MESSAGE] = { 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		if (to >= 0 && write(to, data, sizeof(data)) <= 0)
			exit(0);
		if (from >= 0 && read(from, data, sizeof(data)) <= 0)
			exit(0);
	}
}

int main(int argc, char **argv)
{
	int groups = argc == 3 ? atoi(argv[1]) : 0, seconds = argc == 3 ? atoi(argv[2]) : 0;

	if (groups < 1 || seconds < 1) {
		fprintf(stderr, "usage: hackload GROUPS SECONDS\n");
		return 2;
	}
	for (int g = 0; g < groups; g++)
		for (int p = 0; p < PAIRS; p++) {
			int s[2];

			if (socketpair(AF_UNIX, SOCK_STREAM, 0, s)) {
				perror("hackload: socketpair");
				return 1;
			}
			if (!fork())
				pass(-1, s[0]);
			if (!fork())
				pass(s[1], -1);
			close(s[0]);
			close(s[1]);
		}
	sleep((unsigned int)seconds);
	return 0; /* the children end with us */
}
