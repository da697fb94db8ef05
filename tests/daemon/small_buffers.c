// SPDX-License-Identifier: MIT
/*
 * small_buffers.c - loaded into rtxgd by LD_PRELOAD: no socket has room for more than some packets,
 * as where net.core.wmem_max is small. Only for tests; never installed.
 */
#include <dlfcn.h>
#include <sys/socket.h>

int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	int (*next)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");
	int small = 1;

	if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_SNDBUFFORCE))
		return next(fd, level, SO_SNDBUF, &small, sizeof(small));
	return next(fd, level, name, value, size);
}
