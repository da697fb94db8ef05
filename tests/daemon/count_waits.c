// SPDX-License-Identifier: MIT
/*
 * count_waits.c - loaded into rtxgd by LD_PRELOAD: counts how often it asks epoll, in the first 8
 * bytes of the file that $RTXG_COUNT_WAITS names. Only for tests; never installed.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t none, *count = &none;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("RTXG_COUNT_WAITS");
	int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	void *page = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, sizeof(*count)))
		page = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page != MAP_FAILED)
		count = page;
	if (fd >= 0)
		close(fd);
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
	int (*next)(int, struct epoll_event *, int, int) = dlsym(RTLD_NEXT, "epoll_wait");

	__atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
	return next(fd, events, most, timeout);
}

int epoll_pwait2(int fd, struct epoll_event *events, int most, const struct timespec *timeout,
		 const sigset_t *signals)
{
	int (*next)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *) =
		dlsym(RTLD_NEXT, "epoll_pwait2");

	__atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
	return next(fd, events, most, timeout, signals);
}
