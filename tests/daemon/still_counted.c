// SPDX-License-Identifier: MIT
/*
 * still_counted.c - loaded into rtxgd by LD_PRELOAD: after a client has read all, the first
 * question of how much it has not read is answered with 1. So does the kernel while the reader is
 * still about to free what it has read: it wakes the writer first. Only for tests; never installed.
 */
#include <dlfcn.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/ioctl.h>

#define FILES 1024

int ioctl(int fd, unsigned long request, ...)
{
	static bool had[FILES];
	int (*next)(int, unsigned long, void *) = dlsym(RTLD_NEXT, "ioctl");
	va_list ap;
	void *arg;
	int ret;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	ret = next(fd, request, arg);
	if (request == SIOCOUTQ && !ret && fd >= 0 && fd < FILES) {
		int *bytes = arg;
		bool before = had[fd];

		had[fd] = *bytes > 0;
		if (before && !*bytes)
			*bytes = 1;
	}
	return ret;
}
