// SPDX-License-Identifier: MIT
/*
 * t_holes.c - a client punches a hole into a page that it shares with rtxgd, on a machine that has
 * no memory left to promise (vm.overcommit_memory=2): rtxgd's next look at the page finds no memory
 * for it. That harms the client alone.
 */
#include <linux/falloc.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "gpu.h"

/* The descriptor of this process whose link begins so; -1: there is none. */
static int find_fd(const char *link)
{
	char path[32], target[64];

	for (int fd = 3; fd < 64; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = 0;
		if (!strncmp(target, link, strlen(link)))
			return fd;
	}
	return -1;
}

static int setting(const char *name)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC);

	check(fd >= 0, "%s: %d", name, errno);
	return fd;
}

static void test_a_hole_that_cannot_be_filled_harms_its_client(void)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	int page, doorbell, strict, room, ratio;
	rtx_gpu_t task, other;

	if (access("/tests/w_rtxgd", X_OK))
		skip("rtxgd was not built (make)");
	mkdir("/tmp/run", 0700);
	setenv("XDG_RUNTIME_DIR", "/tmp/run", 1);
	setenv("RTXG_DAEMON", "/tests/w_rtxgd", 1);
	setenv("RTXG_HOST", "daemon", 1);
	check(!rtx_gpu_open(&task, &options), "open: %s", rtx_strerror());
	page = find_fd("/memfd:rtxg-page");
	doorbell = find_fd("anon_inode:[eventfd]");
	check(page >= 0 && doorbell >= 0, "page %d, doorbell %d", page, doorbell);
	strict = setting("/proc/sys/vm/overcommit_memory");
	room = setting("/proc/sys/vm/overcommit_kbytes");
	ratio = setting("/proc/sys/vm/overcommit_ratio");
	check(write(room, "1", 1) == 1 && write(strict, "2", 1) == 1, "no strict promises: %d",
	      errno);
	check(!fallocate(page, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), "hole: %d",
	      errno);
	/* It looks at the page for each. */
	for (int i = 0; i < 20; i++) {
		eventfd_write(doorbell, 1);
		sleep_ns(20 * 1000000ull);
	}
	check(pwrite(strict, "0", 1, 0) == 1 && write(ratio, "50", 2) == 2, "as before: %d", errno);
	options.flags = RTX_OPEN_NO_SPAWN;
	check(!rtx_gpu_open(&other, &options), "rtxgd is gone: %s", rtx_strerror());
	check(!rtx_gpu_launch(other, RTX_COMPUTE) && !rtx_gpu_complete(other, RTX_COMPUTE, 0),
	      "another task does not launch: %s", rtx_strerror());
	rtx_gpu_close(other);
	shell("busybox killall w_rtxgd");
	unsetenv("RTXG_HOST");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "a_hole_that_cannot_be_filled_harms_its_client",
		  test_a_hole_that_cannot_be_filled_harms_its_client },
	};

	return RUN(cases);
}
