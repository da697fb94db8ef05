// SPDX-License-Identifier: MIT
/* patience.c - preloaded by test_answer.py: says for how long the program is ready to wait. */
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	int (*next)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);

	*(void **)&next = dlsym(RTLD_NEXT, "ppoll");
	if (timeout)
		fprintf(stderr, "patience %lld.%09ld\n", (long long)timeout->tv_sec,
			timeout->tv_nsec);
	return next(fds, count, timeout, mask);
}
