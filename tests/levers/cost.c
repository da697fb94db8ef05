// SPDX-License-Identifier: MIT
/*
 * cost.c - how often the lever is woken, how often it calls the driver and looks into queues, and
 * how much CPU time its own code takes, for each way of sharing: on the fake driver, whose GPU
 * gives each enabled context its slice in turn. Prints a line of JSON for each. What the driver
 * itself takes for a call is not in it.
 *
 *	cost [SECONDS]		of the fake's time, for each; 10
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>
#include "fake_nvidiactl.h"
#include "rig.h"

#define PROGRAMS 12u
#define SETTLED	 (3000 * MS)

struct gpu {
	uint32_t count, on; /* programs; the one on the engine, or count */
	uint64_t until;
	bool critical; /* the last one works 100 us every 10 ms */
	uint64_t release, done;
	bool chat; /* the last one works 2 ms in 20 ms */
	uint32_t put[PROGRAMS];
};

static bool has_work(const struct gpu *g, uint32_t i)
{
	if (i + 1 < g->count || (!g->critical && !g->chat))
		return true;
	return fake->now >= g->release && g->done < g->release;
}

static void leave(struct gpu *g)
{
	if (g->on == g->count)
		return;
	fake_log(NV_FECS_SIMPLE_END, 100 + g->on, 100 + 20 * g->on, fake->now + EPOCH);
	g->on = g->count;
}

/* The next context comes onto the engine; the save and the restore take 84 us. */
static void next(struct gpu *g, uint32_t from)
{
	/* one that no other displaces stays */
	for (uint32_t k = 1; k <= g->count && g->on < g->count; k++) {
		uint32_t i = (from + k) % g->count;

		if (stopped_on(0, FIRST + i) || !has_work(g, i))
			continue;
		if (i != g->on)
			break;
		g->until = fake->now + MS;
		return;
	}
	leave(g);
	for (uint32_t k = 1; k <= g->count; k++) {
		uint32_t i = (from + k) % g->count;
		uint32_t us = fake_slice(FIRST + i);

		if (stopped_on(0, FIRST + i) || !has_work(g, i))
			continue;
		fake->now += 84000;
		g->on = i;
		fake_log(NV_FECS_SIMPLE_START, 100 + i, 100 + 20 * i, fake->now + EPOCH);
		g->until = fake->now + (us ? us : FAKE_SLICE_DEFAULT) * 1000ull;
		if (i + 1 == g->count && (g->critical || g->chat))
			g->until = fake->now + (g->critical ? 100000 : 2000000);
		return;
	}
	g->until = fake->now + 1000000;
}

static void queues(struct gpu *g)
{
	for (uint32_t i = 0; i < g->count; i++) {
		if (has_work(g, i))
			fake_queue(queues_of(FIRST + i), QUEUE(1), g->put[i], g->put[i] + 2);
		else
			fake_queue(queues_of(FIRST + i), QUEUE(1), g->put[i] + 2, g->put[i] + 2);
	}
}

static void run_for(struct lever_nvidia *l, struct gpu *g, uint64_t ns)
{
	uint64_t end = fake->now + ns;

	while (fake->now < end) {
		uint64_t at = g->until < l->armed ? g->until : l->armed;
		bool special = g->critical || g->chat;

		if (special && g->release > fake->now && g->release < at)
			at = g->release;
		if (at > fake->now)
			fake->now = at;
		if (g->on < g->count && stopped_on(0, FIRST + g->on)) {
			uint32_t was = g->on;

			next(g, was);
		}
		if (fake->now >= g->until) {
			uint32_t was = g->on < g->count ? g->on : 0;

			if (special && was + 1 == g->count && g->on < g->count) {
				g->done = g->release;
				g->release += g->critical ? 10 * MS : 20 * MS;
			}
			if (g->on < g->count)
				g->put[g->on]++;
			next(g, was);
		} else if (g->on == g->count) {
			next(g, 0);
		}
		queues(g);
		if (fake->now >= l->armed && lever_nvidia_dispatch(l))
			return;
		if (l->armed <= fake->now) /* it wants to be called at once */
			fake->now++;
	}
}

static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Of the last program. */
enum kind { AS_THE_OTHERS, CRITICAL, PERIODIC, CHAT };

static void measure(const char *name, uint32_t programs, bool shares, enum kind last_one,
		    uint64_t settle_ns, double seconds)
{
	bool critical = last_one == CRITICAL || last_one == PERIODIC, chat = last_one == CHAT;
	struct rtxg_slice_tenant special = { .min_ppm = 100000 };
	struct lever_nvidia_stats a, b;
	struct gpu g = { .count = programs, .on = programs, .critical = critical, .chat = chat };
	struct lever_nvidia *l;
	uint64_t calls, steps;
	struct rtxg_slice_gpu_view v, w;
	double cpu;

	before(NULL);
	with_queues = true;
	l = lever_up();
	for (uint32_t i = 0; i < programs; i++) {
		struct rtxg_slice_tenant t = { .min_ppm = shares ? 400000 / (i + 1) / 2 : 0 };
		bool last = i + 1 == programs && (critical || chat);

		if (critical)
			special.priority = RTXG_SLICE_CRITICAL_PRIORITY;
		if (last_one == PERIODIC)
			special.period_ns = 10 * MS;
		if (chat)
			special.latency_ns = 5 * MS;
		if (shares || last)
			lever_nvidia_vgpu_set(l, 0, i + 1, last ? &special : &t);
		cuda_process(into_lever, l, 100 + i, FIRST + i, 100 + 20 * i,
			     shares || last ? i + 1 : 0);
	}
	g.release = fake->now + 5 * MS;
	run_for(l, &g, settle_ns);
	lever_nvidia_stats(l, &a);
	rtxg_slice_gpu_view(l->gpu[0].slice, &v);
	calls = fake->calls;
	cpu = cpu_s();
	run_for(l, &g, (uint64_t)(seconds * 1e9));
	cpu = cpu_s() - cpu;
	lever_nvidia_stats(l, &b);
	rtxg_slice_gpu_view(l->gpu[0].slice, &w);
	steps = w.steps - v.steps;
	printf("{\"mode\": \"%s\", \"wakes\": %.0f, \"timers\": %.0f, \"driver\": %.0f, "
	       "\"flushes\": %.0f, \"stops\": %.1f, \"resumes\": %.1f, \"slices\": %.1f, "
	       "\"looks\": %.0f, \"reads\": %.0f, \"steps\": %.0f, \"own_cpu_percent\": %.2f}\n",
	       name, (double)(b.dispatches - a.dispatches) / seconds,
	       (double)(b.arms - a.arms) / seconds, (double)(fake->calls - calls) / seconds,
	       (double)(b.flushes - a.flushes) / seconds,
	       (double)(b.suspends - a.suspends) / seconds,
	       (double)(b.resumes - a.resumes) / seconds, (double)(b.slices - a.slices) / seconds,
	       (double)(b.looks - a.looks) / seconds, (double)(b.reads - a.reads) / seconds,
	       (double)steps / seconds, 100 * cpu / seconds);
	lever_nvidia_close(l);
}

int main(int argc, char **argv)
{
	double s = argc > 1 ? atof(argv[1]) : 10;

	if (s <= 0) {
		fprintf(stderr, "usage: cost [SECONDS] (above 0)\n");
		return 2;
	}
	measure("no program", 0, false, AS_THE_OTHERS, SETTLED, s);
	measure("one program", 1, false, AS_THE_OTHERS, SETTLED, s);
	measure("ten programs in one vGPU", 10, false, AS_THE_OTHERS, SETTLED, s);
	measure("four programs, shares", 4, true, AS_THE_OTHERS, SETTLED, s);
	measure("three programs, shares, and one with a bound of 5 ms", 4, true, CHAT, SETTLED, s);
	measure("a critical task and three programs", 4, false, CRITICAL, SETTLED, s);
	measure("a critical task and ten programs", 11, false, CRITICAL, SETTLED, s);
	measure("the same, from 0.5 s after their start", 11, false, CRITICAL, 500 * MS, 2.5);
	measure("a periodic critical task and ten programs", 11, false, PERIODIC, SETTLED, s);
	return 0;
}
