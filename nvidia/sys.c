// SPDX-License-Identifier: MIT
/*
 * sys.c - the system calls of struct nv_sys as Linux makes them. May not: know what is asked of the
 * driver.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "rm.h"
#include "rtxg_clock.h"

#define NVIDIA_MAJOR 195
#define CTL_MINOR    255

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static int linux_open(void *ctx, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int linux_close(void *ctx, int fd)
{
	return close(fd) ? -errno : 0;
}

static int linux_ioctl(void *ctx, int fd, uint32_t request, void *arg)
{
	int ret;

	do
		ret = ioctl(fd, request, arg);
	while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : ret;
}

static int map(int fd, size_t length, int rights, void **address)
{
	void *p = mmap(NULL, length, rights, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	*address = p;
	return 0;
}

static int linux_mmap(void *ctx, int fd, size_t length, void **address)
{
	return map(fd, length, PROT_READ, address);
}

static int linux_mmap_writable(void *ctx, int fd, size_t length, void **address)
{
	return map(fd, length, PROT_READ | PROT_WRITE, address);
}

static int linux_poll(void *ctx, int fd, uint64_t timeout_ns)
{
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLPRI };
	struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / 1000000000u),
				    .tv_nsec = (long)(timeout_ns % 1000000000u) };
	int n = ppoll(&p, 1, &timeout, NULL);

	if (n < 0)
		return -errno;
	if (n && !(p.revents & (POLLIN | POLLPRI)))
		return -ENODEV; /* at once, and so again and again: the GPU is lost */
	return n;
}

static int linux_munmap(void *ctx, void *address, size_t length)
{
	return munmap(address, length) ? -errno : 0;
}

static int linux_pidfd_open(void *ctx, int pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : fd;
}

static int linux_pidfd_getfd(void *ctx, int pidfd, int fd)
{
	int ret = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);

	return ret < 0 ? -errno : ret;
}

static int linux_ctl_fds(void *ctx, int pid, int *fds, int cap)
{
	struct dirent *e;
	char path[300];
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while ((e = readdir(dir))) {
		struct statx st;

		snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, e->d_name);
		/* What the kernel knows of it: a file system of the user's own may never answer. */
		if (e->d_name[0] == '.' ||
		    statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE, &st) ||
		    !S_ISCHR(st.stx_mode) || st.stx_rdev_major != NVIDIA_MAJOR ||
		    st.stx_rdev_minor != CTL_MINOR)
			continue;
		if (n < cap)
			fds[n] = atoi(e->d_name);
		n++;
	}
	closedir(dir);
	return n;
}

static int linux_alive(void *ctx, int pid)
{
	return !kill(pid, 0) || errno != ESRCH;
}

/* This much is told without a lock of the process. */
static uint32_t linux_owner(void *ctx, int pid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	return stat(path, &st) ? 0 : st.st_uid;
}

static uint64_t linux_now_ns(void *ctx)
{
	return rtxg_now_ns();
}

const struct nv_sys nv_sys_linux = {
	.open = linux_open,
	.close = linux_close,
	.ioctl = linux_ioctl,
	.mmap = linux_mmap,
	.mmap_writable = linux_mmap_writable,
	.munmap = linux_munmap,
	.poll = linux_poll,
	.pidfd_open = linux_pidfd_open,
	.pidfd_getfd = linux_pidfd_getfd,
	.ctl_fds = linux_ctl_fds,
	.alive = linux_alive,
	.owner = linux_owner,
	.now_ns = linux_now_ns,
};
