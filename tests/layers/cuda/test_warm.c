// SPDX-License-Identifier: MIT
/*
 * test_warm.c - librtxg-cuda.so in a program whose CUDA is fake_libcuda.c: its effects on the
 * program, and their times.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "fake_libcuda.h"
#include "releases_write.h"
#include "rtxg_clock.h"

int InitializeInjection(void);

static struct nv_releases *page;

static int counted(const int *count)
{
	return __atomic_load_n(count, __ATOMIC_SEQ_CST);
}

static void wait_for(const int *count, int at_least)
{
	for (int i = 0; i < 20000 && counted(count) < at_least; i++)
		usleep(1000);
	assert_true(counted(count) >= at_least);
}

static void tell(uint64_t warm_ns)
{
	struct nv_release r = { .pid = (uint32_t)getpid(), .pci_bus = 0x41, .warm_ns = warm_ns };

	__atomic_store_n(&page->heartbeat_ns, rtxg_now_ns(), __ATOMIC_RELAXED);
	nv_releases_set(page, 0, &r);
}

/*
 * Tells of releases until one was met: on a busy machine the thread may come too late for one, and
 * then leaves it alone. At most one launch each.
 */
static void one_release(void)
{
	int launches = counted(&fake_cuda.launches), told;
	uint64_t first = rtxg_now_ns() + 20000000u, at = first;

	for (told = 1; told < 200; told++, at = rtxg_now_ns() + 20000000u) {
		tell(at);
		while (counted(&fake_cuda.launches) == launches && rtxg_now_ns() < at + 20000000u)
			usleep(500);
		if (counted(&fake_cuda.launches) > launches)
			break;
	}
	assert_in_range(counted(&fake_cuda.launches), launches + 1, launches + told);
	assert_true(__atomic_load_n(&fake_cuda.launched_ns, __ATOMIC_SEQ_CST) >= first);
}

static void it_is_ready_before_the_jobs_begin(void **state)
{
	char path[] = "/tmp/rtxg-releases-XXXXXX";
	int file = mkstemp(path), launches;
	uint64_t began, longest = 0;

	assert_true(file >= 0);
	close(file);
	setenv("RTXG_RELEASES", path, 1);
	fake_cuda.elsewhere = 1; /* all the while, a thread of the program's captures graphs */
	assert_int_equal(nv_releases_open(path, &page), 0);
	page->heartbeat_ns = rtxg_now_ns();
	assert_int_equal(InitializeInjection(), 1);
	/* neither before cuInit is done nor before there is a context does it do anything */
	usleep(20000);
	__atomic_store_n(&fake_cuda.initialised, 1, __ATOMIC_SEQ_CST);
	usleep(20000);
	assert_int_equal(counted(&fake_cuda.retains), 0);
	__atomic_store_n(&fake_cuda.active, 1, __ATOMIC_SEQ_CST);
	/* The lever knows nothing of the program as yet; all that takes long is done, once. */
	wait_for(&fake_cuda.launches, 1);
	assert_int_equal(counted(&fake_cuda.loads), 1);
	tell(UINT64_MAX);
	for (int job = 0; job < 20; job++) {
		one_release();
		began = rtxg_now_ns();
		fake_cuda_job();
		if (rtxg_now_ns() - began > longest)
			longest = rtxg_now_ns() - began;
	}
	assert_int_equal(counted(&fake_cuda.loads), 1);
	assert_int_equal(counted(&fake_cuda.retains), 1);
	print_message("longest wait of a job %llu us\n", (unsigned long long)longest / 1000);
	/* The last one is still in flight: nothing is added to it. */
	__atomic_store_n(&fake_cuda.query, 600, __ATOMIC_SEQ_CST);
	launches = counted(&fake_cuda.launches);
	tell(rtxg_now_ns() + 5000000u);
	usleep(50000);
	assert_int_equal(counted(&fake_cuda.launches), launches);
	__atomic_store_n(&fake_cuda.query, 0, __ATOMIC_SEQ_CST);
	one_release();
	launches = counted(&fake_cuda.launches);
	/* The program has reset the device: that is the end of it. */
	__atomic_store_n(&fake_cuda.active, 0, __ATOMIC_SEQ_CST);
	tell(rtxg_now_ns() + 5000000u);
	usleep(50000);
	assert_int_equal(counted(&fake_cuda.launches), launches);
	assert_int_equal(counted(&fake_cuda.wrong), 0);
	assert_int_equal(counted(&fake_cuda.broken), 0);
	nv_releases_close(path, page);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(it_is_ready_before_the_jobs_begin) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
