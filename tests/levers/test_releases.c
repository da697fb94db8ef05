// SPDX-License-Identifier: MIT
/*
 * test_releases.c - programs that bring their contexts in by themselves are found, and told when.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"
#include "rtxg/releases.h"
#include "rig.h"

static void releases_are_told_and_taken_back(void **state)
{
	struct nv_release r = { .pid = 7, .pci_bus = 0x41, .warm_ns = 5 };
	struct nv_releases *page, *other;
	char path[] = "/tmp/rtxg-releases-XXXXXX";

	close(mkstemp(path));
	assert_int_equal(nv_releases_open(path, &page), 0); /* replaces what was there */
	assert_int_equal(page->magic, NV_RELEASES_MAGIC);
	nv_releases_set(page, 3, &r);
	assert_int_equal(page->entry[3].sequence, 2);
	nv_releases_set(page, 3, &r); /* nothing new: nothing is written */
	assert_int_equal(page->entry[3].sequence, 2);
	r.warm_ns = 6;
	nv_releases_set(page, 3, &r);
	assert_int_equal(page->entry[3].sequence, 4);
	assert_int_equal(page->entry[3].warm_ns, 6);
	/* a new daemon: the old page stays as it is for programs that map it */
	assert_int_equal(nv_releases_open(path, &other), 0);
	assert_int_equal(other->entry[3].pid, 0);
	assert_int_equal(page->entry[3].pid, 7);
	nv_releases_close(path, other);
	assert_int_equal(access(path, F_OK), -1);
	nv_releases_close(path, page);
	assert_int_equal(nv_releases_open("/nowhere/at/all", &page), -ENOENT);
	assert_null(page);
}

/*
 * A program with librtxg-cuda.so in it is told of its releases from its first context on, and not
 * only at the next look.
 */
static void a_warmed_program_is_noticed_at_once(void **state)
{
	char folder[] = "/tmp/rtxg-warm-XXXXXX", library[100], releases[100];
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &fake_sys,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_guardian = true,
					  .allow_unguarded = true,
					  .releases = releases };
	struct rtxg_slice_tenant t = { .priority = RTXG_SLICE_CRITICAL_PRIORITY,
				       .period_ns = 10 * MS };
	struct lever_nvidia_process list[2];
	struct lever_nvidia *l;
	pid_t pid, self = getpid();
	int fd, ready[2];
	char c;

	assert_non_null(mkdtemp(folder));
	snprintf(library, sizeof(library), "%s/librtxg-cuda.so", folder);
	snprintf(releases, sizeof(releases), "%s/releases", folder);
	fd = open(library, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		die_with(self);
		if (mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED &&
		    write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 9, &t), 0);
	cuda_process(into_lever, l, (uint32_t)pid, 0xc1d00010, 100, 9);
	/* its own pid is not governed */
	cuda_process(into_lever, l, (uint32_t)getpid(), 0xc1d00011, 120, 9);
	assert_int_equal(lever_nvidia_processes(l, list, 2), 1);
	assert_true(list[0].warms);
	assert_int_equal(lever_nvidia_dispatch(l), 0);
	assert_int_equal(l->releases->entry[0].pid, pid);
	/* it has had no release as yet */
	assert_true(l->releases->entry[0].warm_ns == RTXG_SLICE_NEVER);
	lever_nvidia_close(l);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd);
	close(ready[0]);
	close(ready[1]);
	unlink(library);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(releases_are_told_and_taken_back, before),
		cmocka_unit_test_setup(a_warmed_program_is_noticed_at_once, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
