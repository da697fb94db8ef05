// SPDX-License-Identifier: MIT
/*
 * gpu.c - measures launches, and joins the latest with the driver's log of context switches. May
 * not: read the log in the thread that measures.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <rtxg_clock.h>

#include "../cli/text.h"
#include "gpu.h"
#include "gpu_log.h"
#include "launcher.h"
#include "split.h"
#include "undo.h"

#define KEPT	65536 /* events of the log that are remembered */
#define WARM_UP 100   /* launches before the first that counts: the clocks are compared there */

/* A stage of all cycles. */
struct gpu_stage {
	uint64_t count, sum_ns, max_ns;
};

/* A cycle with the place of the two clocks. */
struct gpu_cycle {
	struct split_cycle times;
	int64_t offset_ns; /* CLOCK_MONOTONIC - GPU's clock */
	int64_t error_ns;  /* it is wrong by at most so much */
};

/* A launch that was later than all before, on its way to the main thread. */
struct gpu_late {
	atomic_int state; /* enum gpu_late_state */
	struct gpu_cycle cycle;
};

/* The longest launch of a time, and where its time went. */
struct gpu_longest {
	bool found;
	struct gpu_cycle cycle;
	struct split_part parts[SPLIT_PARTS];
	char holders[SPLIT_PARTS][32];
	int part_count;
};

enum gpu_late_state {
	GPU_LATE_NONE,
	GPU_LATE_WRITTEN,
	GPU_LATE_READY,
	GPU_LATE_READ,
};

struct gpu {
	struct launcher *launcher;
	struct kernel *kernel;
	struct probe *probe;
	struct split_clock clock;
	struct gpu_stage wait, execution, completion;
	struct gpu_cycle last;
	/* the main thread copies one at a time: a later launch always finds a place */
	struct gpu_late late[2];
	int warm; /* launches before those that count */
	/* of the main thread */
	struct gpu_longest line, whole; /* since the last line of --each, and of the run */
	bool logging;
	struct gpu_log log;
	struct split_switch *events; /* a ring of KEPT, times of the GPU's clock */
	uint64_t event_count;
};

static void stage(struct gpu_stage *s, uint64_t from, uint64_t to)
{
	uint64_t ns = to > from ? to - from : 0;

	s->count++;
	s->sum_ns += ns;
	if (ns > s->max_ns)
		s->max_ns = ns;
}

/* One launch, by the measuring thread. */
static int work(struct probe *p, uint64_t *begin_ns, uint64_t *done_ns)
{
	uint64_t launch_ns = *begin_ns;
	struct gpu *g = p->work_context;
	struct split_cycle *c = &g->last.times;
	struct launcher_times t;

	for (; g->warm < WARM_UP; g->warm++) {
		uint64_t begin = rtxg_now_ns();

		if (launcher_run(g->launcher, &t))
			break;
		split_clock_add(&g->clock, begin, t.start_gpu_ns, t.end_gpu_ns, rtxg_now_ns());
		launch_ns = rtxg_now_ns();
	}
	*begin_ns = launch_ns;
	if (launcher_run(g->launcher, &t)) {
		return -EIO;
	}
	*done_ns = rtxg_now_ns();
	split_clock_add(&g->clock, launch_ns, t.start_gpu_ns, t.end_gpu_ns, *done_ns);
	g->last.offset_ns = split_clock_offset(&g->clock);
	g->last.error_ns = (g->clock.most - g->clock.least) / 2;
	*c = (struct split_cycle){ .launch_ns = launch_ns,
				   .submitted_ns = t.submitted_ns,
				   .start_ns = t.start_gpu_ns + (uint64_t)g->last.offset_ns,
				   .end_ns = t.end_gpu_ns + (uint64_t)g->last.offset_ns,
				   .done_ns = *done_ns,
				   .pid = (uint32_t)getpid() };
	if (g->kernel) {
		const struct latency_wake *wake = kernel_wake(g->kernel, p->number, 0);

		if (wake->waking_ns > launch_ns && wake->switch_ns <= *done_ns) {
			c->waking_ns = wake->waking_ns;
			c->switched_ns = wake->switch_ns;
		}
	}
	stage(&g->wait, launch_ns, c->start_ns);
	stage(&g->execution, c->start_ns, c->end_ns);
	stage(&g->completion, c->end_ns, *done_ns);
	return 0;
}

static bool moves(struct gpu_late *late, int from, int to)
{
	return atomic_compare_exchange_strong(&late->state, &from, to);
}

static void late(struct probe *p, const struct probe_worst *worst)
{
	struct gpu *g = p->work_context;
	struct gpu_late *place = NULL;

	/* one that was not read yet is not the latest any more */
	for (int i = 0; i < 2 && !place; i++)
		if (moves(&g->late[i], GPU_LATE_READY, GPU_LATE_WRITTEN))
			place = &g->late[i];
	for (int i = 0; i < 2 && !place; i++)
		if (moves(&g->late[i], GPU_LATE_NONE, GPU_LATE_WRITTEN))
			place = &g->late[i];
	if (!place)
		return;
	place->cycle = g->last;
	atomic_store(&place->state, GPU_LATE_READY);
}

static void open_log(struct gpu *g, void (*said)(const char *format, ...))
{
	const char *pci = launcher_pci(g->launcher);
	int ret;

	g->events = calloc(KEPT, sizeof(*g->events));
	ret = g->events ? gpu_log_open(&g->log, &nv_sys_linux, pci) : -ENOMEM;
	g->logging = !ret;
	if (ret)
		said("the driver's log of context switches cannot be read (GPU %s): %s; waiting "
		     "for the engine has no names%s",
		     pci ? pci : "at an unknown address", strerror(-ret),
		     ret == -EPERM || ret == -EACCES ? "; root is needed"
		     : ret == -ENOTUNIQ ? "; CUDA's library does not say which of the GPUs it has"
					: "");
}

struct gpu *gpu_open(const char *which, void (*said)(const char *format, ...), const char **reason)
{
	struct gpu *g = calloc(1, sizeof(*g));

	*reason = "out of memory";
	if (g)
		g->launcher = launcher_open(which, reason);
	if (!g || !g->launcher) {
		free(g);
		return NULL;
	}
	if (!strncmp(launcher_name(g->launcher), "CUDA", 4))
		open_log(g, said);
	return g;
}

void gpu_close(struct gpu *g)
{
	if (!g)
		return;
	if (g->logging)
		gpu_log_close(&g->log);
	launcher_close(g->launcher);
	free(g->events);
	free(g);
}

void gpu_attach(struct gpu *g, struct probe *p, struct kernel *k)
{
	g->probe = p;
	g->kernel = k;
	p->work = work;
	p->work_context = g;
	p->late = late;
}

static void read_log(struct gpu *g)
{
	struct nv_fecs_event got[256];
	int n;

	nv_fecs_flush(&g->log.fecs);
	while ((n = nv_fecs_read(&g->log.fecs, got, 256)) > 0)
		for (int i = 0; i < n; i++)
			g->events[g->event_count++ % KEPT] =
				(struct split_switch){ got[i].gpu_ns, got[i].pid,
						       got[i].start != 0 };
}

/* The events of the log around a cycle, with times of CLOCK_MONOTONIC. Returns how many. */
static size_t around(const struct gpu *g, const struct gpu_cycle *c, struct split_switch *out,
		     size_t room)
{
	uint64_t first = g->event_count > KEPT ? g->event_count - KEPT : 0, from = first;
	size_t count = 0;

	/* from the last one before the launch on */
	for (uint64_t i = first; i < g->event_count; i++)
		if (g->events[i % KEPT].ns + (uint64_t)c->offset_ns <= c->times.launch_ns)
			from = i;
	for (uint64_t i = from; i < g->event_count && count < room; i++) {
		out[count] = g->events[i % KEPT];
		out[count].ns += (uint64_t)c->offset_ns;
		if (out[count].ns > c->times.done_ns)
			break;
		count++;
	}
	return count;
}

static uint64_t whole_ns(const struct gpu_longest *longest)
{
	return longest->cycle.times.done_ns - longest->cycle.times.launch_ns;
}

void gpu_collect(struct gpu *g)
{
	struct gpu_longest *line = &g->line;
	static struct split_switch window[4096];
	struct gpu_late *place = g->late;
	size_t count = 0;

	if (g->logging)
		read_log(g);
	while (place < g->late + 2 && !moves(place, GPU_LATE_READY, GPU_LATE_READ))
		place++;
	if (place == g->late + 2)
		return;
	line->cycle = place->cycle;
	line->found = true;
	atomic_store(&place->state, GPU_LATE_NONE);
	if (g->logging)
		count = around(g, &line->cycle, window, sizeof(window) / sizeof(window[0]));
	line->part_count = split_cycle(&line->cycle.times, window, count, line->parts);
	for (int i = 0; i < line->part_count; i++) {
		char path[64];

		line->holders[i][0] = 0;
		if (line->parts[i].kind != SPLIT_HELD)
			continue;
		snprintf(path, sizeof(path), "/proc/%u/comm", line->parts[i].pid);
		if (undo_read_line(path, line->holders[i], sizeof(line->holders[i])) <= 0)
			strcpy(line->holders[i], "?");
		text_clean(line->holders[i]);
	}
	if (!g->whole.found || whole_ns(line) > whole_ns(&g->whole))
		g->whole = *line;
}

static double mean_us(const struct gpu_stage *s)
{
	return s->count ? (double)s->sum_ns / (double)s->count / 1e3 : 0;
}

static void part_text(const struct gpu_longest *of, int i, char *text, size_t size)
{
	const struct split_part *part = &of->parts[i];

	if (part->kind == SPLIT_HELD)
		snprintf(text, size, "%s %s %u", split_words(part->kind), of->holders[i],
			 part->pid);
	else
		snprintf(text, size, "%s", split_words(part->kind));
}

void gpu_show(struct gpu *g, FILE *out)
{
	const struct gpu_longest *longest = &g->whole;
	uint64_t whole = whole_ns(longest);
	char text[128];

	fprintf(out, "# %s\n", launcher_name(g->launcher));
	fprintf(out,
		"# Mean and maximum, us: launch to begin %.1f %.1f, execution %.1f %.1f, end to "
		"program %.1f %.1f\n",
		mean_us(&g->wait), (double)g->wait.max_ns / 1e3, mean_us(&g->execution),
		(double)g->execution.max_ns / 1e3, mean_us(&g->completion),
		(double)g->completion.max_ns / 1e3);
	if (!longest->found)
		return;
	fprintf(out, "# The longest launch: %.1f us (the GPU's clock is known to %.1f us)\n",
		(double)whole / 1e3, (double)longest->cycle.error_ns / 1e3);
	for (int i = 0; i < longest->part_count; i++) {
		part_text(longest, i, text, sizeof(text));
		fprintf(out, "# %5.1f %% %9.1f us  %s\n",
			whole ? 100.0 * (double)longest->parts[i].ns / (double)whole : 0,
			(double)longest->parts[i].ns / 1e3, text);
	}
}

static json_t *stage_json(const struct gpu_stage *s)
{
	return json_pack("{s:I, s:f, s:f}", "count", (json_int_t)s->count, "avg_us", mean_us(s),
			 "max_us", (double)s->max_ns / 1e3);
}

static json_t *parts_json(const struct gpu_longest *of)
{
	uint64_t whole = whole_ns(of);
	json_t *parts = json_array();
	char text[128];

	for (int i = 0; i < of->part_count; i++) {
		part_text(of, i, text, sizeof(text));
		json_array_append_new(
			parts,
			json_pack("{s:s, s:f, s:f, s:I, s:s}", "what", text, "us",
				  (double)of->parts[i].ns / 1e3, "percent",
				  whole ? 100.0 * (double)of->parts[i].ns / (double)whole : 0.0,
				  "pid", (json_int_t)of->parts[i].pid, "command", of->holders[i]));
	}
	return parts;
}

json_t *gpu_json(struct gpu *g)
{
	return json_pack("{s:s, s:b, s:o, s:o, s:o, s:{s:f, s:f, s:o}}", "name",
			 launcher_name(g->launcher), "log", g->logging, "begin",
			 stage_json(&g->wait), "execution", stage_json(&g->execution), "completion",
			 stage_json(&g->completion), "worst", "latency_us",
			 (double)whole_ns(&g->whole) / 1e3, "clock_error_us",
			 (double)g->whole.cycle.error_ns / 1e3, "parts", parts_json(&g->whole));
}

json_t *gpu_line_json(struct gpu *g)
{
	const struct gpu_longest *line = &g->line;
	char text[128] = "";
	int most = 0;
	json_t *one;

	if (!line->found)
		return NULL;
	for (int i = 1; i < line->part_count; i++)
		if (line->parts[i].ns > line->parts[most].ns)
			most = i;
	if (line->part_count)
		part_text(line, most, text, sizeof(text));
	one = json_pack("{s:i, s:f, s:f, s:s, s:s, s:o}", "thread", g->probe->number, "latency_us",
			(double)whole_ns(line) / 1e3, "clock_error_us",
			(double)line->cycle.error_ns / 1e3, "culprit", text, "record", "", "parts",
			parts_json(line));
	g->line.found = false;
	return one;
}
