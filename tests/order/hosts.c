// SPDX-License-Identifier: MIT
/*
 * hosts.c - each host of an order in user space, under threads: nobody begins an access before what
 * it needs, everybody ends, nobody who could go is forgotten, and a thread that ends early or
 * stands still lets all others go with the reason. Orders are those of random runs, from a fixed
 * seed.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "order.h"

#define THREADS	 5
#define ACCESSES 600
#define ROUNDS	 5
#define PLACES	 3

static const enum rtx_order_host hosts[] = { RTX_ORDER_FUTEX, RTX_ORDER_SHARED, RTX_ORDER_OPT };

/* Threads that look without end are in each other's way: few accesses will do. */
static uint32_t length_of(enum rtx_order_host host)
{
	return host == RTX_ORDER_SHARED ? ACCESSES / 15 : ACCESSES;
}

static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % below;
}

/* The order of a random run, of which some needs are left out. */
static struct rtx_order *random_order(enum rtx_order_host host, uint32_t made[THREADS])
{
	static struct rtxg_order_access access[ACCESSES];
	static struct rtxg_order_entry entries[ACCESSES];
	static struct rtxg_order_need needs[2 * ACCESSES];
	static uint32_t reads[ACCESSES];
	struct rtxg_order_place_state places[PLACES];
	uint32_t length = length_of(host), entry_count = ACCESSES, need_count = 2 * ACCESSES;
	struct rtx_order_options options = { .size = sizeof(options), .host = host };
	struct rtxg_order_fault fault;
	struct rtxg_order_shape shape;
	struct rtxg_order core;
	struct rtx_order *order;
	void *memory;

	memset(made, 0, THREADS * sizeof(*made));
	for (uint32_t i = 0; i < length; i++) {
		uint32_t thread = draw(THREADS);

		access[i] = (struct rtxg_order_access){ thread, made[thread]++, draw(PLACES),
							draw(3) == 0, i };
	}
	assert_int_equal(rtxg_order_derive(access, length, THREADS, places, PLACES, reads, entries,
					   &entry_count, needs, &need_count),
			 0);
	shape = (struct rtxg_order_shape){ THREADS, entry_count, need_count };
	memory = calloc(1, rtxg_order_size(&shape));
	rtxg_order_place(&core, &shape, memory);
	assert_int_equal(rtxg_order_load(&core, entries, needs, made, &fault), 0);
	assert_int_equal(rtx_lib_order_start(&order, &core, memory, NULL, &options), 0);
	return order;
}

struct follower {
	struct rtx_order *order;
	uint32_t thread, accesses;
	_Atomic uint32_t *clocks; /* the test's own */
	uint32_t early;		  /* accesses that began before what they need */
	int ret;
	pthread_t pthread;
};

static void *follow(void *argument)
{
	struct follower *f = argument;
	const struct rtxg_order *core = &f->order->core;

	f->ret = rtx_order_join(f->order, f->thread + 1);
	for (uint32_t n = 0; !f->ret && n < f->accesses; n++) {
		uint32_t entry = rtxg_order_next(core, f->thread, n);

		f->ret = rtx_order_before(f->order, f->thread + 1);
		if (f->ret)
			break;
		for (uint32_t i = 0; entry != RTXG_ORDER_NO_ENTRY &&
				     core->entry[entry].number == n && i < core->entry[entry].count;
		     i++) {
			const struct rtxg_order_need *need =
				&core->need[core->entry[entry].first + i];

			f->early += f->clocks[need->thread] < need->clock;
		}
		f->clocks[f->thread]++;
		f->ret = rtx_order_after(f->order, f->thread + 1);
	}
	rtx_order_leave(f->order, f->thread + 1);
	return NULL;
}

static void follow_all(struct rtx_order *order, struct follower *followers,
		       const uint32_t accesses[THREADS])
{
	static _Atomic uint32_t clocks[THREADS];

	for (uint32_t t = 0; t < THREADS; t++) {
		clocks[t] = 0;
		followers[t] = (struct follower){
			.order = order, .thread = t, .accesses = accesses[t], .clocks = clocks
		};
	}
	for (uint32_t t = 0; t < THREADS; t++)
		assert_int_equal(pthread_create(&followers[t].pthread, NULL, follow, &followers[t]),
				 0);
	for (uint32_t t = 0; t < THREADS; t++)
		pthread_join(followers[t].pthread, NULL);
}

static void test_each_access_comes_after_what_it_needs(void **state)
{
	struct follower followers[THREADS];
	uint32_t made[THREADS];

	for (size_t h = 0; h < sizeof(hosts) / sizeof(hosts[0]); h++)
		for (int round = 0; round < ROUNDS; round++) {
			struct rtx_order_counts counts = { .size = sizeof(counts) };
			struct rtx_order *order = random_order(hosts[h], made);

			follow_all(order, followers, made);
			for (uint32_t t = 0; t < THREADS; t++) {
				assert_int_equal(followers[t].ret, 0);
				assert_int_equal(followers[t].early, 0);
			}
			assert_int_equal(rtx_order_count(order, &counts), 0);
			assert_int_equal(counts.accesses, length_of(hosts[h]));
			assert_int_equal(counts.rescues, 0);
			assert_true(counts.restricted > 0);
			rtx_order_close(order);
		}
}

/* One thread stops short of what the others need: all of them end, and are told which thread. */
static void test_a_thread_that_ends_early_lets_all_others_go(void **state)
{
	struct follower followers[THREADS];
	uint32_t made[THREADS];
	char text[300];

	for (size_t h = 0; h < sizeof(hosts) / sizeof(hosts[0]); h++)
		for (uint32_t dead = 0; dead < THREADS; dead++) {
			struct rtx_order *order = random_order(hosts[h], made);

			made[dead] /= 2;
			follow_all(order, followers, made);
			assert_int_equal(rtx_order_broken(order, text, sizeof(text)), 1);
			assert_non_null(strstr(text, " ended after "));
			assert_int_equal(order->broken.step.need.thread, dead);
			rtx_order_close(order);
		}
}

static int open_text(struct rtx_order **order, enum rtx_order_host host, uint64_t patience_ns,
		     const char *text)
{
	struct rtx_order_options options = { .size = sizeof(options),
					     .host = host,
					     .patience_ns = patience_ns };
	char path[] = "/tmp/rtxg-order-XXXXXX";
	int fd = mkstemp(path), ret;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	ret = rtx_order_open(order, path, &options);
	unlink(path);
	return ret;
}

/* The thread that is needed never comes: patience ends, whatever the host. */
static void test_a_thread_that_never_comes_is_not_waited_for(void **state)
{
	char text[300];

	for (size_t h = 0; h < sizeof(hosts) / sizeof(hosts[0]); h++) {
		struct rtx_order *order;

		assert_int_equal(open_text(&order, hosts[h], 50000000, "{(1,[0:3])}"), 0);
		assert_int_equal(rtx_order_join(order, 1), 0);
		assert_int_equal(rtx_order_before(order, 1), -EPIPE);
		assert_int_equal(rtx_order_broken(order, text, sizeof(text)), 1);
		assert_string_equal(text, "nothing moved: access 0 of thread 1 (main.1) (line 1) "
					  "needs 3 accesses of thread 2 (main.2), which made 0");
		assert_int_equal(rtx_order_after(order, 1), 0);
		assert_int_equal(rtx_order_join(order, 2), -EPIPE);
		rtx_order_close(order);
	}
}

static void *join_and_wait(void *argument)
{
	struct follower *f = argument;

	f->ret = rtx_order_join(f->order, 1);
	if (!f->ret)
		f->ret = rtx_order_before(f->order, 1);
	return NULL;
}

/* Closed while a thread waits in it: the thread is let go, and the memory stays until it is out. */
static void test_closing_an_order_lets_its_threads_go(void **state)
{
	for (size_t h = 0; h < sizeof(hosts) / sizeof(hosts[0]); h++) {
		struct follower f = { 0 };

		assert_int_equal(open_text(&f.order, hosts[h], 0, "{(1,[0:3])}"), 0);
		assert_int_equal(pthread_create(&f.pthread, NULL, join_and_wait, &f), 0);
		while (!__atomic_load_n(&f.order->thread[0].waits, __ATOMIC_SEQ_CST))
			usleep(100);
		rtx_order_close(f.order);
		pthread_join(f.pthread, NULL);
		assert_int_equal(f.ret, -EPIPE);
	}
}

static void test_calls_out_of_order_are_refused_with_words(void **state)
{
	struct rtx_order_options options = { .size = sizeof(options), .host = RTX_ORDER_HOSTS };
	struct rtx_order *order;

	assert_int_equal(rtx_order_open(&order, "/nonexistent", NULL), -ENOENT);
	assert_non_null(strstr(rtx_strerror(), "/nonexistent"));
	assert_int_equal(rtx_order_open(&order, "/nonexistent", &options), -EINVAL);
	assert_int_equal(open_text(&order, RTX_ORDER_FUTEX, 0, "{(1,[0:3])}"), 0);
	assert_int_equal(rtx_order_before(order, 1), -EBADFD);
	assert_int_equal(rtx_order_join(order, 0), -ENXIO);
	assert_int_equal(rtx_order_join(order, 3), -ENXIO);
	assert_string_equal(rtx_strerror(), "thread 3; the order has threads 1 to 2");
	assert_int_equal(rtx_order_join(order, 2), 0);
	assert_int_equal(rtx_order_join(order, 2), -EBUSY);
	assert_int_equal(rtx_order_leave(order, 2), 0);
	assert_int_equal(rtx_order_join(order, 2), -EBUSY);
	assert_int_equal(rtx_order_after(order, 2), -EBADFD);
	rtx_order_close(order);
	assert_null(rtx_order_host_name(RTX_ORDER_HOSTS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_access_comes_after_what_it_needs),
		cmocka_unit_test(test_a_thread_that_ends_early_lets_all_others_go),
		cmocka_unit_test(test_a_thread_that_never_comes_is_not_waited_for),
		cmocka_unit_test(test_closing_an_order_lets_its_threads_go),
		cmocka_unit_test(test_calls_out_of_order_are_refused_with_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
