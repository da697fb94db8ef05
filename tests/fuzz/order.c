// SPDX-License-Identifier: MIT
/*
 * fuzz/order.c - libFuzzer target: any text as an order. What is read and can be followed is
 * followed, by threads in turn, to its end: nobody may be left waiting, and what relaxing leaves
 * must be an order that can be followed, too. May not: depend on anything but its input.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "order_file.h"

/* Numbers in a text may be great: a run follows as far as this. */
#define ACCESSES_MOST 2000u

static void die(const char *what)
{
	fprintf(stderr, "fuzz order: %s\n", what);
	abort();
}

static void follow(const struct rtxg_order *order)
{
	static struct rtxg_order_thread threads[RTXG_ORDER_THREADS_MAX];
	static struct rtxg_order_action actions[RTXG_ORDER_THREADS_MAX];
	static uint32_t clocks[RTXG_ORDER_THREADS_MAX];
	uint32_t count = order->shape.threads, moved = 1;
	struct rtxg_order_run run;

	rtxg_order_begin(&run, order, threads, clocks, 1);
	for (uint32_t t = 0; t < count; t++)
		rtxg_order_step(&run, RTXG_ORDER_JOIN, t, actions, count);
	for (uint32_t made = 0; moved && made < ACCESSES_MOST;) {
		moved = 0;
		for (uint32_t t = 0; t < count; t++, made++) {
			if (threads[t].state == RTXG_ORDER_FREE)
				rtxg_order_step(&run, RTXG_ORDER_BEFORE, t, actions, count);
			if (threads[t].state == RTXG_ORDER_WAITING)
				continue;
			moved++;
			rtxg_order_step(&run, RTXG_ORDER_AFTER, t, actions, count);
		}
		if (!moved)
			die("all threads wait");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rtx_order_file file;
	struct rtxg_order order;
	void *memory;

	if (rtx_lib_order_file_parse(&file, "input", (const char *)data, size)) {
		if (strncmp(file.error, "input:", 6) != 0)
			die(file.error);
		return 0;
	}
	if (!rtx_lib_order_file_load(&file, "input", &order, &memory)) {
		follow(&order);
		free(memory);
	}
	rtx_lib_order_file_free(&file);
	return 0;
}
