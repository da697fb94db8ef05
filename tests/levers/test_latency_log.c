// SPDX-License-Identifier: MIT
/*
 * test_latency_log.c - `rtxg latency --gpu` on a machine with two GPUs that CUDA numbers in another
 * order: the log is that of the GPU on which it launches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>
#include "../../latency/gpu_log.h"
#include "../../latency/launcher.h"
#include "fake_cuda.h"
#include "fake_nvidiactl.h"
#include "rig.h"

static struct gpu_log opened;

static int two_gpus(void **state)
{
	before(state);
	fake->gpus = 2;
	strcpy(fake_cuda_address, "");
	return 0;
}

/* What CUDA says of its first device is looked for among the driver's GPUs. */
static int open_log(void)
{
	const char *reason;
	struct launcher *l = launcher_open("cuda", &reason);
	int err;

	assert_non_null(l);
	assert_string_equal(launcher_name(l), "CUDA: fake 0");
	err = gpu_log_open(&opened, &fake_sys, launcher_pci(l));
	launcher_close(l);
	return err;
}

static void the_log_is_of_the_gpu_that_cuda_has(void **state)
{
	static const struct {
		const char *address;
		bool reversed;
		uint32_t gpu; /* of the driver */
	} cases[] = { { "0000:00:06.0", false, 0 },
		      { "0000:01:06.0", false, 1 },
		      { "0000:90:06.0", true, 0 },
		      { "00000000:8F:06.0", true, 1 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		two_gpus(state);
		fake->reversed = cases[i].reversed;
		strcpy(fake_cuda_address, cases[i].address);
		assert_int_equal(open_log(), 0);
		assert_int_equal(opened.fecs.gpu->gpu_id, FAKE_GPU_ID + cases[i].gpu);
		assert_int_equal(fake->last_log, cases[i].gpu);
		gpu_log_close(&opened);
		assert_int_equal(fake->open_fds, 0);
	}
}

static void two_gpus_of_one_bus_are_told_apart(void **state)
{
	fake->one_bus = true;
	strcpy(fake_cuda_address, "0000:00:07.0");
	assert_int_equal(open_log(), 0);
	assert_int_equal(fake->last_log, 1);
	gpu_log_close(&opened);
	assert_int_equal(fake->open_fds, 0);
}

static void a_gpu_that_the_driver_does_not_have_is_not_another(void **state)
{
	static const char *const addresses[] = { "0000:05:06.0", "0001:00:06.0", "nonsense" };

	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		strcpy(fake_cuda_address, addresses[i]);
		assert_int_equal(open_log(), -ENODEV);
		assert_int_equal(fake->open_fds, 0);
	}
}

static void without_an_address_there_is_one_gpu_or_none(void **state)
{
	assert_int_equal(open_log(), -ENOTUNIQ);
	assert_int_equal(fake->open_fds, 0);
	fake->gpus = 1;
	assert_int_equal(open_log(), 0);
	gpu_log_close(&opened);
	fake->open_error = EACCES;
	assert_int_equal(open_log(), -EACCES);
	assert_int_equal(fake->open_fds, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_log_is_of_the_gpu_that_cuda_has, two_gpus),
		cmocka_unit_test_setup(two_gpus_of_one_bus_are_told_apart, two_gpus),
		cmocka_unit_test_setup(a_gpu_that_the_driver_does_not_have_is_not_another,
				       two_gpus),
		cmocka_unit_test_setup(without_an_address_there_is_one_gpu_or_none, two_gpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
