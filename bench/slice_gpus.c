// SPDX-License-Identifier: MIT
/*
 * slice_gpus.c - training on two model GPUs (tests/unit/slice_gpus.h) whose ranks wait for each
 * other on the GPU, beside what else there may be on one GPU or on both: how much of it runs at the
 * same time on both, when each GPU chooses turns for itself, and with turns by the clock. All times
 * are the model's, so it prints the same on each run and machine.
 *
 * Usage: slice_gpus [--json]. Exit status 1 if an aim was not met, 2 for wrong usage.
 * May not: hold a policy, or measure time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "slice_gpus.h"

#define US	 MODEL_US
#define MS	 MODEL_MS
#define S	 MODEL_S
#define CAN	 (RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_DEMAND)
#define GPUS	 2u
#define DURATION (20 * S)
#define SKIP	 20u

enum { OTHER = 0, HOG = 3, TRAINING = 5 };

struct scene {
	const char *what;
	uint32_t on; /* so many GPUs have the other */
	struct rtxg_slice_tenant tenant;
	struct model_program program;
	double useful_least; /* aim, of the work of the GPU that does less of the training */
	double wait_most;    /* aim, ms, p99 of the other's waits; 0: none */
	uint64_t bound;	     /* the training's own; then it has 50 %, and each hog */
};

#define TASK                                                                \
	{                                                                   \
		.kernel_ns = 100 * US, .burst = 1, .pause_min_ns = 10 * MS, \
		.pause_max_ns = 11 * MS                                     \
	}
#define PERIODIC                                            \
	{                                                   \
		.kernel_ns = 100 * US, .period_ns = 10 * MS \
	}
#define CHAT                                                                            \
	{                                                                               \
		.kernel_ns = 100 * US, .launches = 22, .depth = 32, .cpu_ns = 400 * US, \
		.burst = 8, .pause_min_ns = 20 * MS, .pause_max_ns = 120 * MS           \
	}
#define STEADY                                                       \
	{                                                            \
		.kernel_ns = 2 * MS, .launches = 1000000, .depth = 8 \
	}

static const struct scene scenes[] = {
	{ .what = "nothing else", .useful_least = 0.95 },
	{ .what = "nothing else, 50 % and a bound of 20 ms",
	  .useful_least = 0.95,
	  .bound = 20 * MS },
	{ .what = "critical task on one GPU",
	  .on = 1,
	  .tenant = { .priority = RTXG_SLICE_CRITICAL_PRIORITY },
	  .program = TASK,
	  .useful_least = 0.85,
	  .wait_most = 0.35 },
	{ .what = "critical task on each",
	  .on = 2,
	  .tenant = { .priority = RTXG_SLICE_CRITICAL_PRIORITY },
	  .program = TASK,
	  .useful_least = 0.85,
	  .wait_most = 0.35 },
	{ .what = "periodic task on one GPU",
	  .on = 1,
	  .tenant = { .priority = RTXG_SLICE_CRITICAL_PRIORITY, .period_ns = 10 * MS },
	  .program = PERIODIC,
	  .useful_least = 0.85,
	  .wait_most = 0.1 },
	{ .what = "periodic task on each",
	  .on = 2,
	  .tenant = { .priority = RTXG_SLICE_CRITICAL_PRIORITY, .period_ns = 10 * MS },
	  .program = PERIODIC,
	  .useful_least = 0.85,
	  .wait_most = 0.1 },
	{ .what = "chat, 1 ms (turns), on one GPU",
	  .on = 1,
	  .tenant = { .min_ppm = 300000, .latency_ns = 1 * MS },
	  .program = CHAT,
	  .useful_least = 0.85,
	  .wait_most = 1 },
	{ .what = "chat, 1 ms (turns), on each",
	  .on = 2,
	  .tenant = { .min_ppm = 300000, .latency_ns = 1 * MS },
	  .program = CHAT,
	  .useful_least = 0.6,
	  .wait_most = 1 },
	{ .what = "chat, 5 ms (arrival), on one GPU",
	  .on = 1,
	  .tenant = { .min_ppm = 300000, .latency_ns = 5 * MS },
	  .program = CHAT,
	  .useful_least = 0.85,
	  .wait_most = 5 },
	{ .what = "chat, 5 ms (arrival), on each",
	  .on = 2,
	  .tenant = { .min_ppm = 300000, .latency_ns = 5 * MS },
	  .program = CHAT,
	  .useful_least = 0.6,
	  .wait_most = 5 },
	{ .what = "steady work, 20 ms (slices), on each",
	  .on = 2,
	  .tenant = { .min_ppm = 300000, .latency_ns = 20 * MS },
	  .program = STEADY,
	  .useful_least = 0.7 },
};

#define SCENES (sizeof(scenes) / sizeof(scenes[0]))

struct result {
	double work[GPUS], useful, hog[GPUS], idle[GPUS]; /* percent of the time */
	double wait;					  /* ms, p99, the longer one of both GPUs */
	double acts; /* a second, of the GPU with more of them */
};

static double percent_of(uint64_t ns)
{
	return 100 * (double)ns / (double)DURATION;
}

static struct result measure(const struct scene *scene, bool clock)
{
	struct model_gpus *all = model_gpus_open(GPUS, CAN, 1);
	struct model_collective *with = model_gpus_collective(all, GPUS);
	uint32_t training[GPUS], hog[GPUS], other[GPUS];
	struct result r = { .useful = 100 };

	if (!clock)
		model_gpus_uncouple(all);
	for (uint32_t g = 0; g < GPUS; g++) {
		struct model_program training_program = model_training(TRAINING, with, g);
		struct model_program other_program = scene->program;

		uint32_t min = scene->bound ? 500000 : 400000;

		training_program.bound = scene->bound;
		model_gpus_tenant(
			all, g, TRAINING,
			(struct rtxg_slice_tenant){ .min_ppm = min, .latency_ns = scene->bound });
		model_gpus_tenant(
			all, g, HOG + g,
			(struct rtxg_slice_tenant){ .min_ppm = scene->bound ? min : 300000 });
		training[g] = model_gpus_program(all, g, training_program);
		hog[g] =
			model_gpus_program(all, g,
					   (struct model_program){ .tenant = HOG + g,
								   .kernel_ns = 2 * MS,
								   .launches = 1000000,
								   .depth = 8,
								   .start_ns = (g + 1) * 13 * MS });
		if (g >= scene->on)
			continue;
		other_program.tenant = OTHER + g;
		other_program.bound = scene->tenant.latency_ns;
		model_gpus_tenant(all, g, OTHER + g, scene->tenant);
		other[g] = model_gpus_program(all, g, other_program);
	}
	model_gpus_run(all, DURATION);
	if (model_gpus_wrong(all)) {
		fprintf(stderr, "slice_gpus: %s: %s: this is a bug of the core or of the model\n",
			scene->what, model_gpus_wrong(all));
		exit(1);
	}
	for (uint32_t g = 0; g < GPUS; g++) {
		struct model *m = model_gpu(all, g);
		const struct model_host *host = model_host(m);
		double useful = percent_of(model_stats(m, training[g])->useful_ns), acts, wait;

		r.work[g] = percent_of(model_stats(m, training[g])->work_ns);
		r.useful = useful < r.useful ? useful : r.useful;
		r.hog[g] = percent_of(model_stats(m, hog[g])->work_ns);
		r.idle[g] = percent_of(model_idle_ns(m));
		acts = (double)(host->stops + host->resumes + host->sets) / (DURATION / S);
		r.acts = acts > r.acts ? acts : r.acts;
		if (g >= scene->on)
			continue;
		wait = (double)model_quantile(model_stats(m, other[g])->waits,
					      model_stats(m, other[g])->wait_count, SKIP, 0.99) /
		       MS;
		r.wait = wait > r.wait ? wait : r.wait;
	}
	model_gpus_close(all);
	return r;
}

static double less(const double of[GPUS])
{
	return of[0] < of[1] ? of[0] : of[1];
}

static double more(const double of[GPUS])
{
	return of[0] < of[1] ? of[1] : of[0];
}

static bool met(const struct scene *scene, const struct result *r)
{
	return r->useful >= scene->useful_least * less(r->work) &&
	       (!(scene->wait_most > 0) || r->wait <= scene->wait_most);
}

static void show(const struct result *r, const char *name)
{
	printf("  %-12s %6.1f %6.1f %6.1f  %6.1f %6.1f  %6.2f %7.2f %6.1f\n", name, r->work[0],
	       r->work[1], r->useful, r->hog[0], r->hog[1], more(r->idle), r->wait, r->acts);
}

static void write_json(const struct result *r, const char *name, const char *end)
{
	printf("   \"%s\": {\"training_percent\": [%.1f, %.1f], \"useful_percent\": %.1f, "
	       "\"hog_percent\": [%.1f, %.1f], \"idle_percent\": %.2f, \"wait_p99_ms\": %.2f, "
	       "\"acts_a_second\": %.1f}%s\n",
	       name, r->work[0], r->work[1], r->useful, r->hog[0], r->hog[1], more(r->idle),
	       r->wait, r->acts, end);
}

int main(int argc, char **argv)
{
	bool json = argc == 2 && !strcmp(argv[1], "--json"), all = true;

	if (argc > 1 && !json) {
		fprintf(stderr, "slice_gpus: '%s': the one option is --json\n", argv[1]);
		return 2;
	}
	if (json)
		printf("{\n \"command\": \"build/release/bench/slice_gpus --json\",\n"
		       " \"machine\": {\"gpu\": \"two model GPUs: no figure depends on the "
		       "machine\"},"
		       "\n \"results\": [\n");
	else
		printf("Training with 40 %% of two GPUs beside a hog with 30 %% on each, "
		       "percent of the time:\n  %-12s %13s %6s  %13s  %6s %7s %6s\n",
		       "beside", "training", "useful", "hogs", "idle", "wait99", "acts");
	for (uint32_t i = 0; i < SCENES; i++) {
		struct result apart = measure(&scenes[i], false), clock = measure(&scenes[i], true);

		all = all && met(&scenes[i], &clock);
		if (json) {
			printf("  {\"beside\": \"%s\",\n", scenes[i].what);
			write_json(&apart, "apart", ",");
			write_json(&clock, "by_the_clock", "");
			printf("  }%s\n", i + 1 < SCENES ? "," : "");
			continue;
		}
		printf("%s: %s\n", scenes[i].what,
		       met(&scenes[i], &clock) ? "aims met" : "AIMS NOT MET");
		show(&apart, "apart");
		show(&clock, "by the clock");
	}
	if (json)
		printf(" ]\n}\n");
	return all ? 0 : 1;
}
