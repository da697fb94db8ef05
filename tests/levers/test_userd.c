// SPDX-License-Identifier: MIT
/*
 * test_userd.c - the look into another process's queue: only the words of that channel are read,
 * whatever the process says of itself, and nothing of it is kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>
#include "fake_nvidiactl.h"
#include "rig.h"
#include "rm.h"
#include "state.h"
#include "userd.h"

#define CLIENT 0xc1d00010u
#define MEMORY 0x5c000010u

struct at {
	struct nv_rm rm;
	struct nv_rm_gpu gpu[2];
	int count, fd;
};

static void up(struct at *t, int gpus)
{
	int pidfd;

	fake->gpus = gpus;
	assert_int_equal(nv_rm_open(&t->rm, &fake_sys), 0);
	t->count = nv_rm_gpus_open(&t->rm, t->gpu, 2);
	assert_int_equal(t->count, gpus);
	pidfd = fake_sys.pidfd_open(NULL, 100);
	t->fd = fake_sys.pidfd_getfd(NULL, pidfd, 7);
	fake_sys.close(NULL, pidfd);
}

static void down(struct at *t)
{
	fake_sys.close(NULL, t->fd);
	for (int i = 0; i < t->count; i++)
		nv_rm_gpu_close(&t->gpu[i]);
	nv_rm_close(&t->rm);
	assert_int_equal(fake->open_fds, 0);
	assert_int_equal(fake_dups(), 0);
	assert_int_equal(fake_maps(), 0);
	assert_int_equal(fake->wild_maps, 0);
}

static void both_words_of_a_channel_are_read(void **state)
{
	static const uint32_t classes[] = { NV_CLASS_MEMORY_LOCAL, NV_CLASS_MEMORY_SYSTEM };

	for (int i = 0; i < 2; i++) {
		struct fake_memory_object *m;
		struct nv_userd u;
		uint64_t words;
		struct at t;

		before(NULL);
		up(&t, 2);
		m = fake_memory_add(1, CLIENT, MEMORY, classes[i], 8192);
		fake_queue(m, 4096 + 512, 3, 5);
		assert_int_equal(
			nv_userd_open(&u, &t.gpu[1], t.fd, CLIENT, MEMORY, 4096 + 512, 4096 + 512),
			0);
		words = nv_userd_read(&u, 4096 + 512);
		assert_int_equal(nv_userd_get(words), 3);
		assert_int_equal(nv_userd_put(words), 5);
		/* another channel of the same page */
		fake_queue(m, 4096 + 1024, 7, 8);
		assert_int_equal(nv_userd_put(nv_userd_read(&u, 4096 + 1024)), 8);
		/* the door is closed behind us */
		assert_int_equal(m->shared_to, 0);
		assert_int_equal(m->dups, 1);
		nv_userd_close(&u, &t.gpu[1]);
		nv_userd_close(&u, &t.gpu[1]);
		down(&t);
	}
}

static void what_a_process_says_of_itself_is_not_believed(void **state)
{
	static const uint64_t nowhere[] = { 3,	  4096 - 8,  UINT64_MAX, UINT64_MAX - 4095,
					    8192, 1ull << 40 };
	struct nv_userd u;
	struct at t;

	up(&t, 1);
	fake_memory_add(0, CLIENT, MEMORY, NV_CLASS_MEMORY_LOCAL, 8192);
	for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++) {
		assert_true(nv_userd_open(&u, &t.gpu[0], t.fd, CLIENT, MEMORY, nowhere[i],
					  nowhere[i]) < 0);
		assert_int_equal(u.handle, 0);
	}
	/* an object that is smaller than it says */
	fake_memory_add(0, CLIENT, MEMORY + 1, NV_CLASS_MEMORY_LOCAL, 512);
	assert_int_equal(nv_userd_open(&u, &t.gpu[0], t.fd, CLIENT, MEMORY + 1, 512, 512), -ERANGE);
	/* no memory at all: the doorbell, a channel, nothing */
	fake_memory_add(0, CLIENT, MEMORY + 2, 0xc661, 8192);
	fake_memory_add(0, CLIENT, MEMORY + 3, 0xc86f, 8192);
	assert_int_equal(nv_userd_open(&u, &t.gpu[0], t.fd, CLIENT, MEMORY + 2, 0, 0),
			 -EMEDIUMTYPE);
	assert_int_equal(nv_userd_open(&u, &t.gpu[0], t.fd, CLIENT, MEMORY + 3, 0, 0),
			 -EMEDIUMTYPE);
	assert_int_equal(nv_userd_open(&u, &t.gpu[0], t.fd, CLIENT, MEMORY + 4, 0, 0), -ENOENT);
	assert_int_equal(nv_userd_open(&u, &t.gpu[0], t.fd, CLIENT, 0, 0, 0), -EINVAL);
	/* another process's object, through this one's descriptor */
	assert_int_equal(nv_userd_open(&u, &t.gpu[0], t.fd, CLIENT + 1, MEMORY, 0, 0), -ENOENT);
	down(&t);
}

static void a_refusal_at_any_step_leaves_nothing(void **state)
{
	static const uint32_t steps[] = { NV0000_CLIENT_GET_HANDLE_INFO, NV_ESC_RM_SHARE,
					  NV_ESC_RM_DUP_OBJECT, NV_ESC_RM_MAP_MEMORY };

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct fake_memory_object *m;
		struct nv_userd u;
		struct at t;

		before(NULL);
		up(&t, 1);
		m = fake_memory_add(0, CLIENT, MEMORY, NV_CLASS_MEMORY_LOCAL, 8192);
		fake_fail(steps[i], 0, NV_STATUS_NO_MEMORY);
		assert_int_equal(nv_userd_open(&u, &t.gpu[0], t.fd, CLIENT, MEMORY, 0, 0), -ENOMEM);
		assert_int_equal(u.handle, 0);
		assert_int_equal(m->shared_to, 0);
		down(&t);
	}
}

/* While others keep the driver busy. */
static int slowly(void *ctx, int fd, uint32_t request, void *arg)
{
	fake->now += 20 * MS;
	return fake_sys.ioctl(ctx, fd, request, arg);
}

static void a_busy_driver_is_not_kept_from_the_rest_by_looks(void **state)
{
	const struct rtxg_slice_tenant bound = { .latency_ns = 5 * MS };
	struct nv_sys slow = fake_sys;
	struct lever_nvidia_options o = { .size = sizeof(o),
					  .sys = &slow,
					  .no_discovery = true,
					  .no_adoption = true,
					  .no_guardian = true,
					  .allow_unguarded = true };
	struct lever_nvidia *l;
	struct nv_context *c[3];
	uint64_t calls, at;

	with_queues = true;
	assert_int_equal(lever_nvidia_open(&o, NULL, &l, NULL, 0), 0);
	assert_int_equal(lever_nvidia_vgpu_set(l, 0, 1, &bound), 0);
	for (uint32_t i = 0; i < 3; i++) {
		cuda_process(into_lever, l, 100 + i, CLIENT + i, 20 * i, i == 2);
		c[i] = nv_context_of(&l->gpu[0], nv_registry_process(&l->registry, 100 + i));
	}
	fake->now += 100 * MS;
	slow.ioctl = slowly;
	at = fake->now;
	assert_true(nv_sight_open(l, &l->gpu[0], c[0], fake->now));
	assert_true(fake->now - at >= 100 * MS);
	/* The next one waits, and one with a bound does not. */
	calls = fake->calls;
	assert_false(nv_sight_open(l, &l->gpu[0], c[1], fake->now));
	assert_int_equal(fake->calls, calls);
	assert_true(nv_sight_open(l, &l->gpu[0], c[2], fake->now));
	slow.ioctl = fake_sys.ioctl;
	fake->now = l->open_again;
	assert_true(fake->now < at + 5000 * MS);
	assert_true(nv_sight_open(l, &l->gpu[0], c[1], fake->now));
	lever_nvidia_close(l);
	assert_int_equal(fake_maps(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(both_words_of_a_channel_are_read, before),
		cmocka_unit_test_setup(what_a_process_says_of_itself_is_not_believed, before),
		cmocka_unit_test_setup(a_refusal_at_any_step_leaves_nothing, before),
		cmocka_unit_test_setup(a_busy_driver_is_not_kept_from_the_rest_by_looks, before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
