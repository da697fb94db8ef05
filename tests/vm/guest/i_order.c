// SPDX-License-Identifier: MIT
/*
 * i_order.c - execution overhead of the nine hosts of thread order on the Fibonacci program, by
 * counted instructions on one CPU: (T - T_plain) / T_plain in percent, of the time from the first
 * start of a thread to the last end. The figures go into the JSON result; what is checked is what
 * the paper found: where few accesses wait, a look at a page before the kernel is entered costs
 * less than entering it each time; and ours costs less than both under each order.
 */
#include "rtxg_vm.h"

#include "order_fibonacci.h"

enum { ROUNDS = 15 };

static const uint32_t lengths[3] = { 98, 44, 24 };

static volatile int numbers[2] = { 1, 1 };

struct adder {
	struct rtx_order *order; /* NULL: plain */
	uint32_t thread;
	int ret;
	pthread_t pthread;
};

/* One access: the program's own, between the calls that the compiler's flag would put there. */
static int access_number(struct adder *a, volatile int *number, int add, bool write)
{
	int value;

	if (a->order)
		a->ret |= rtx_order_before(a->order, a->thread + 1);
	if (write)
		*number = add;
	value = *number;
	if (a->order)
		a->ret |= rtx_order_after(a->order, a->thread + 1);
	return value;
}

static void *add(void *argument)
{
	struct adder *a = argument;
	volatile int *mine = &numbers[a->thread], *other = &numbers[1 - a->thread];

	if (a->order)
		a->ret = rtx_order_join(a->order, a->thread + 1);
	for (int round = 0; round < FIBONACCI / 3; round++) {
		int sum = access_number(a, mine, 0, false);

		sum += access_number(a, other, 0, false);
		access_number(a, mine, sum, true);
	}
	if (a->order)
		rtx_order_leave(a->order, a->thread + 1);
	return NULL;
}

static uint64_t run_once(struct rtx_order *order)
{
	struct adder adders[2] = { { .order = order, .thread = 0 },
				   { .order = order, .thread = 1 } };
	uint64_t begin = rtxg_now_ns();

	for (int t = 0; t < 2; t++)
		pthread_create(&adders[t].pthread, NULL, add, &adders[t]);
	for (int t = 0; t < 2; t++)
		pthread_join(adders[t].pthread, NULL);
	begin = rtxg_now_ns() - begin;
	check(!adders[0].ret && !adders[1].ret, "%d, %d", adders[0].ret, adders[1].ret);
	return begin;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The median of some runs; host RTX_ORDER_HOSTS: the plain program. */
static double took(enum rtx_order_host host, uint32_t length)
{
	uint64_t times[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		struct rtx_order *order = NULL;

		if (host != RTX_ORDER_HOSTS) {
			order = fibonacci_order(host, length);
			if (!check(order != NULL, "%s: %s", rtx_order_host_name(host),
				   rtx_strerror()))
				return 0;
		}
		times[i] = run_once(order);
		rtx_order_close(order);
	}
	qsort(times, ROUNDS, sizeof(times[0]), compare);
	return (double)times[ROUNDS / 2];
}

static void test_overhead(void)
{
	double plain = took(RTX_ORDER_HOSTS, 0), overhead[RTX_ORDER_HOSTS];

	for (int i = 0; i < 3; i++) {
		for (enum rtx_order_host host = 0; host < RTX_ORDER_HOSTS; host++) {
			char name[64];

			overhead[host] = (took(host, lengths[i]) - plain) / plain * 100;
			snprintf(name, sizeof(name), "order_fibonacci_%d_%s_overhead", i + 1,
				 rtx_order_host_name(host));
			value(name, overhead[host], "percent");
		}
		if (kernel_with_checks())
			continue;
		/* under the first order a third of the accesses waits, and the page helps less */
		for (enum rtx_order_host page = RTX_ORDER_PROTO_5; i && page <= RTX_ORDER_PROTO_6;
		     page++)
			for (enum rtx_order_host each = RTX_ORDER_PROTO_1;
			     each <= RTX_ORDER_PROTO_4; each++)
				check(overhead[page] < overhead[each],
				      "order %d: %s %.1f %%, %s %.1f %%", i + 1,
				      rtx_order_host_name(page), overhead[page],
				      rtx_order_host_name(each), overhead[each]);
		check(overhead[RTX_ORDER_FUTEX] < overhead[RTX_ORDER_PROTO_5] &&
			      overhead[RTX_ORDER_FUTEX] < overhead[RTX_ORDER_PROTO_6],
		      "order %d: ours %.1f %%", i + 1, overhead[RTX_ORDER_FUTEX]);
	}
}

/* --- loading ---------------------------------------------------------------------------------- */

enum { LOADED = 5, ENTRIES = RTXG_ORDER_KERNEL_ENTRIES_MAX, TICK_NS = 200000 };

static volatile bool loading, ended;
static uint64_t longest_wait_ns;

/* Is to run every now and then: how late it does while an order is loaded. */
static void *wake_often(void *unused)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	while (!ended) {
		uint64_t wanted = at.tv_sec * 1000000000ull + at.tv_nsec + TICK_NS, late;

		at = (struct timespec){ wanted / 1000000000ull, wanted % 1000000000ull };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		clock_gettime(CLOCK_MONOTONIC, &at);
		late = at.tv_sec * 1000000000ull + at.tv_nsec - wanted;
		if (loading && late > longest_wait_ns)
			longest_wait_ns = late;
	}
	return unused;
}

/* As large an order as the module takes: each of five threads waits for all others, by turns. */
static void test_others_run_while_an_order_is_loaded(void)
{
	static struct rtxg_order_entry entries[ENTRIES];
	static struct rtxg_order_need needs[ENTRIES][LOADED - 1];
	struct rtxg_order_load load = { .size = sizeof(load),
					.prototype = 1,
					.threads = LOADED,
					.entries = ENTRIES,
					.needs = ENTRIES * (LOADED - 1),
					.entry = (uintptr_t)entries,
					.need = (uintptr_t)needs };
	struct sched_param high = { .sched_priority = 50 };
	int device = open_rtxg(), fd;
	uint64_t begin;
	pthread_t other;

	for (uint32_t e = 0; e < ENTRIES; e++) {
		uint32_t own = e % LOADED, number = e / LOADED + 1, count = 0;

		for (uint32_t t = 0; t < LOADED; t++)
			if (t != own)
				needs[e][count++] =
					(struct rtxg_order_need){ t, number + (t < own) };
		entries[e] = (struct rtxg_order_entry){ own, number, e * count, count, e, 0 };
	}
	pthread_create(&other, NULL, wake_often, NULL);
	check(!pthread_setschedparam(other, SCHED_FIFO, &high), "a priority");
	begin = rtxg_now_ns();
	loading = true;
	fd = ioctl(device, RTXG_IOC_ORDER_LOAD, &load);
	loading = false;
	begin = rtxg_now_ns() - begin;
	ended = true;
	pthread_join(other, NULL);
	check(fd >= 0, "the order is refused: fault %u", load.fault.kind);
	value("order_load", begin / 1e6, "ms");
	value("order_load_longest_wait", longest_wait_ns / 1e6, "ms");
	/* the kernel's own steps are longer than ours: it makes pages zero, many at a time */
	if (!kernel_with_checks())
		check(longest_wait_ns * 20 < begin, "another thread waited for %.3f of %.3f ms",
		      longest_wait_ns / 1e6, begin / 1e6);
	close(fd);
	close(device);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "others run while an order is loaded", test_others_run_while_an_order_is_loaded },
		{ "overhead of thread order", test_overhead },
	};

	load_module();
	return RUN(cases);
}
