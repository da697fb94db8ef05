// SPDX-License-Identifier: MIT
/*
 * slice_life.c - core/slice on a model GPU (tests/unit/slice_model.h) with programs as people run
 * them: with phases on the CPU, pauses, bursts and short lives. Each case runs on the stock driver,
 * under the core that knows the context-switch log alone, and under the core that is told of queues
 * too. All times are the model's, so the table is the same on each run and machine.
 *
 * Usage: slice_life [CASE...]. Exit status 1 if an aim was not met, 2 for wrong usage.
 * May not: hold a policy, or measure time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "slice_model.h"

#define US	   MODEL_US
#define MS	   MODEL_MS
#define S	   MODEL_S
#define SKIP_ROUND 20u
#define LOG_ALONE  (RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND)
#define ALL	   (LOG_ALONE | RTXG_SLICE_CAN_LEAVE | RTXG_SLICE_CAN_DEMAND)
#define MOST	   MODEL_PROGRAMS

struct entry {
	struct rtxg_slice_tenant tenant; /* of the same number as the program; unused ones are 0 */
	struct model_program program;
};

struct scene {
	const char *name, *what;
	uint64_t duration;
	uint32_t count;
	int watched;   /* the program whose rounds and waits are shown; -1: none */
	uint64_t late; /* the host comes so late for a while each second */
	bool shares;   /* all have work all the time: the worst second is shown */
	struct entry entries[MOST];
	/* aims of the last of the three; 0 = none */
	double idle_most, work_least, cpu_most, worst_most, wait_most, round_most, sum_least;
	/*
	 * of engines: p99 of first tokens and between tokens over alone, tokens of all over stock's
	 */
	double first_most, between_most, tokens_least;
};

#define MIN(percent) (percent) * 10000

/* kernels back to back, `depth` of them in the queue */
#define HOG(kernel, deep)                                                   \
	{                                                                   \
		.kernel_ns = (kernel), .launches = 1000000, .depth = (deep) \
	}
/* a training loop: many short kernels, then the CPU alone */
#define TRAINING                                                                       \
	{                                                                              \
		.kernel_ns = 300 * US, .launches = 150, .depth = 64, .cpu_ns = 12 * MS \
	}
#define CHAT                                                                            \
	{                                                                               \
		.kernel_ns = 100 * US, .launches = 22, .depth = 32, .cpu_ns = 400 * US, \
		.burst = 8, .pause_min_ns = 20 * MS, .pause_max_ns = 120 * MS           \
	}
/* kernels of 50 us, each waited for, and then the CPU for so long */
#define SMALL(pause)                                       \
	{                                                  \
		.kernel_ns = 50 * US, .cpu_ns = (pause)*US \
	}
/* steps of 20 ms, and a batch is prepared between two of them */
#define STEPS(varies)                                                                  \
	{                                                                              \
		.kernel_ns = 40 * US, .launches = 500, .depth = 256, .vary = (varies), \
		.cpu_ns = 14 * MS                                                      \
	}
/* 40 kernels, and the last of them is waited for */
#define WAITS(kernel)                                                                 \
	{                                                                             \
		.kernel_ns = (kernel), .launches = 40, .depth = 64, .cpu_ns = 60 * US \
	}
/* a token takes 1.3 ms of the engine, and the CPU 0.1 to 0.3 ms between two */
#define DECODER                                                                         \
	{                                                                               \
		.kernel_ns = 20 * US, .launches = 65, .depth = 128, .cpu_ns = 200 * US, \
		.burst = 8, .pause_min_ns = 20 * MS, .pause_max_ns = 120 * MS           \
	}
#define SHORT_LIVED                                                                         \
	{                                                                                   \
		.kernel_ns = 2 * MS, .launches = 1000000, .depth = 4, .life_ns = 1500 * MS, \
		.rest_ns = 100 * MS, .building_ns = 150 * MS                                \
	}
#define TASK(period)                                                                        \
	{                                                                                   \
		.kernel_ns = 100 * US, .launches = 1, .burst = 1, .pause_min_ns = (period), \
		.pause_max_ns = (period)*21 / 20                                            \
	}

/*
 * 12 ms for a prompt, 3.8 ms for a token of each of 16 requests (a CUDA graph, one entry in a
 * queue)
 */
#define ENGINE(rate)                                                                      \
	{                                                                                 \
		.kernel_ns = 120 * US, .launches = 100, .depth = 64, .cpu_ns = 200 * US,  \
		.step_ns = 3800 * US, .requests_per_s = (rate), .slots = 16, .tokens = 48 \
	}

static const struct scene scenes[] = {
	{ .name = "mix",
	  .what = "a chat with 30 % and 5 ms beside three batch programs, one of them with gaps",
	  .duration = 20 * S,
	  .count = 4,
	  .watched = 0,
	  .entries = { { { .min_ppm = MIN(30), .latency_ns = 5 * MS }, CHAT },
		       { { .min_ppm = MIN(20) }, HOG(1500 * US, 32) },
		       { { .min_ppm = MIN(20) }, TRAINING },
		       { { .min_ppm = MIN(10) }, HOG(2 * MS, 8) } },
	  .idle_most = 2,
	  .cpu_most = 8,
	  .wait_most = 5,
	  .round_most = 1.5, /* all are 2.2 ms alone, and to stop three programs takes 0.8 ms */
	  .sum_least = 1.02 },
	{ .name = "frameworks",
	  .what = "the same with kernels and gaps as PyTorch, JAX and CuPy have on an H200",
	  .duration = 20 * S,
	  .count = 4,
	  .watched = 0,
	  .entries = { { { .min_ppm = MIN(30), .latency_ns = 5 * MS }, DECODER },
		       { { .min_ppm = MIN(20) }, WAITS(190 * US) },
		       { { .min_ppm = MIN(20) }, STEPS(0) },
		       { { .min_ppm = MIN(20) }, WAITS(250 * US) } },
	  .idle_most = 2,
	  .cpu_most = 9,
	  .sum_least = 1.02 },
	{ .name = "batch",
	  .what = "60/20/10/10, kernels of 20 ms, two in each queue",
	  .duration = 12 * S,
	  .count = 4,
	  .watched = -1,
	  .shares = true,
	  .entries = { { { .min_ppm = MIN(60) }, HOG(20 * MS, 2) },
		       { { .min_ppm = MIN(20) }, HOG(20 * MS, 2) },
		       { { .min_ppm = MIN(10) }, HOG(20 * MS, 2) },
		       { { .min_ppm = MIN(10) }, HOG(20 * MS, 2) } },
	  .idle_most = 2,
	  .work_least = 105,
	  .worst_most = 1 },
	{ .name = "waiting",
	  .what = "60/20/10/10, kernels of 1 ms, each waited for",
	  .duration = 12 * S,
	  .count = 4,
	  .watched = -1,
	  .shares = true,
	  .entries = { { { .min_ppm = MIN(60) }, { .kernel_ns = 1 * MS, .cpu_ns = 20 * US } },
		       { { .min_ppm = MIN(20) }, { .kernel_ns = 1 * MS, .cpu_ns = 20 * US } },
		       { { .min_ppm = MIN(10) }, { .kernel_ns = 1 * MS, .cpu_ns = 20 * US } },
		       { { .min_ppm = MIN(10) }, { .kernel_ns = 1 * MS, .cpu_ns = 20 * US } } },
	  .idle_most = 3,
	  .work_least = 102,
	  .worst_most = 1 },
	{ .name = "gaps",
	  .what = "two training loops with 40/40 beside one that always has work with 20",
	  .duration = 20 * S,
	  .count = 3,
	  .watched = -1,
	  .entries = { { { .min_ppm = MIN(40) }, TRAINING },
		       { { .min_ppm = MIN(40) }, TRAINING },
		       { { .min_ppm = MIN(20) }, HOG(2 * MS, 8) } },
	  .idle_most = 2,
	  .work_least = 100 },
	{ .name = "alike",
	  .what = "steps that vary by 2 % beside a program that waits for its kernels now and then",
	  .duration = 10 * S,
	  .count = 3,
	  .watched = -1,
	  .entries = { { { .min_ppm = MIN(30) }, STEPS(2) },
		       { { .min_ppm = MIN(20) }, WAITS(190 * US) },
		       { { .min_ppm = MIN(20) }, STEPS(2) } },
	  .idle_most = 0.6 },
	{ .name = "uneven",
	  .what = "the same with steps that vary by 20 %",
	  .duration = 10 * S,
	  .count = 3,
	  .watched = -1,
	  .entries = { { { .min_ppm = MIN(30) }, STEPS(20) },
		       { { .min_ppm = MIN(20) }, WAITS(190 * US) },
		       { { .min_ppm = MIN(20) }, STEPS(20) } },
	  .idle_most = 1.6 },
	{ .name = "small",
	  .what = "kernels of 50 us with pauses of 1 ms, beside one that always has work",
	  .duration = 10 * S,
	  .count = 2,
	  .watched = 0,
	  .entries = { { { .min_ppm = MIN(30) }, SMALL(1000) },
		       { { .min_ppm = MIN(30) }, HOG(2 * MS, 8) } },
	  .idle_most = 2,
	  .sum_least = 1.15 },
	{ .name = "crowd", /* beside a bound pauses are left unused */
	  .what = "the same beside a chat with 5 ms, a training and two hogs: a limit",
	  .duration = 20 * S,
	  .count = 5,
	  .watched = 0,
	  .entries = { { { .min_ppm = MIN(20), .latency_ns = 5 * MS }, CHAT },
		       { { .min_ppm = MIN(20) }, SMALL(1000) },
		       { { .min_ppm = MIN(20) }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(20) }, TRAINING },
		       { { .min_ppm = MIN(20) }, HOG(1500 * US, 32) } },
	  .wait_most = 5 },
	{ .name = "urgent",
	  .what = "the same with a priority of 60",
	  .duration = 10 * S,
	  .count = 2,
	  .watched = 0,
	  .entries = { { { .priority = 60 }, SMALL(1000) },
		       { { .min_ppm = MIN(30) }, HOG(2 * MS, 8) } },
	  .idle_most = 2 },
	{ .name = "chats",
	  .what = "two chats with 20 % and 10 ms each beside two that always have work",
	  .duration = 20 * S,
	  .count = 4,
	  .watched = 0,
	  .entries = { { { .min_ppm = MIN(20), .latency_ns = 10 * MS }, CHAT },
		       { { .min_ppm = MIN(20), .latency_ns = 10 * MS }, CHAT },
		       { { .min_ppm = MIN(20) }, HOG(1500 * US, 32) },
		       { { .min_ppm = MIN(20) }, HOG(2 * MS, 8) } },
	  .idle_most = 2.1, /* 19 bursts a second, each 1 ms until the others run again */
	  .wait_most = 10 },
	{ .name = "engines",
	  .what = "two LLM engines at 45 and 35 % of what one can serve, the first with 70 % and 4 "
		  "ms",
	  .duration = 20 * S,
	  .count = 2,
	  .watched = 0,
	  .entries = { { { .min_ppm = MIN(70), .latency_ns = 4 * MS }, ENGINE(18) },
		       { { .min_ppm = MIN(30) }, ENGINE(14) } },
	  .cpu_most = 12,
	  .first_most = 1.6,
	  .between_most = 1.2,
	  .tokens_least = 0.92 },
	{ .name = "greedy",
	  .what = "the same with 80 % for the first",
	  .duration = 20 * S,
	  .count = 2,
	  .watched = 0,
	  .entries = { { { .min_ppm = MIN(80), .latency_ns = 4 * MS }, ENGINE(18) },
		       { { .min_ppm = MIN(20) }, ENGINE(14) } },
	  .first_most = 1.2,
	  .between_most = 1.2 },
	{ .name = "churn",
	  .what = "a critical task beside four vGPUs with programs of 1.5 s that come and go",
	  .duration = 20 * S,
	  .count = 5,
	  .watched = 0,
	  .entries = { { { .priority = RTXG_SLICE_CRITICAL_PRIORITY }, TASK(10 * MS) },
		       { { .min_ppm = MIN(20) }, SHORT_LIVED },
		       { { .min_ppm = MIN(20) }, SHORT_LIVED },
		       { { .min_ppm = MIN(20) }, SHORT_LIVED },
		       { { .min_ppm = MIN(20) }, SHORT_LIVED } } },
	{ .name = "steady",
	  .what = "a critical task beside one with 30 % and 50 ms, and one with 50 %, always with "
		  "work",
	  .duration = 10 * S,
	  .count = 3,
	  .watched = 0,
	  .entries = { { { .priority = RTXG_SLICE_CRITICAL_PRIORITY }, TASK(10 * MS) },
		       { { .min_ppm = MIN(30), .latency_ns = 50 * MS }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(50) }, HOG(2 * MS, 8) } } },
	{ .name = "periodic",
	  .what = "a task each 10 ms beside three hogs; its host comes late a tenth of the time",
	  .duration = 10 * S,
	  .count = 4,
	  .watched = 0,
	  .late = 800 * US,
	  .entries = { { { .priority = RTXG_SLICE_CRITICAL_PRIORITY, .period_ns = 10 * MS },
			 { .kernel_ns = 100 * US, .period_ns = 10 * MS } },
		       { { .min_ppm = MIN(33) }, HOG(20 * MS, 4) },
		       { { .min_ppm = MIN(33) }, HOG(20 * MS, 4) },
		       { { .min_ppm = MIN(33) }, HOG(20 * MS, 4) } },
	  .work_least = 96,
	  .wait_most = 0.1 },
	{ .name = "ten",
	  .what = "a critical task beside ten programs that always have work",
	  .duration = 20 * S,
	  .count = 11,
	  .watched = 0,
	  .entries = { { { .priority = RTXG_SLICE_CRITICAL_PRIORITY }, TASK(10 * MS) },
		       { { .min_ppm = MIN(9) }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(9) }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(9) }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(9) }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(9) }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(9) }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(9) }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(9) }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(9) }, HOG(2 * MS, 8) },
		       { { .min_ppm = MIN(9) }, HOG(2 * MS, 8) } },
	  .cpu_most = 3,
	  .wait_most = 0.35 },
	{ .name = "alone",
	  .what = "one program that always has work",
	  .duration = 10 * S,
	  .count = 1,
	  .watched = -1,
	  .entries = { { { .min_ppm = MIN(50), .latency_ns = 5 * MS }, HOG(2 * MS, 8) } },
	  .cpu_most = 0.5 },
};

struct result {
	double work;	/* percent of the time */
	double idle;	/* percent of the time: nothing to do, and a stopped one had work */
	double kept;	/* of that, between two rounds of a burst with a latency */
	double worst;	/* points, of a share in 1 s */
	double wait[2]; /* ms, median and p99 */
	double rnd[2];	/* ms, the same */
	double rate[MOST];
	double cpu, stops, steps, wakes, looks, acts;
	double first[2], between[2]; /* ms, of the requests to an engine */
	double tokens[MOST];	     /* a second */
};

static double worst_second(struct model *m, const struct scene *scene)
{
	double worst = 0, reserved = 0;

	for (uint32_t i = 0; i < scene->count; i++)
		reserved += scene->entries[i].tenant.min_ppm;
	for (uint64_t w = 20; w + 10 <= scene->duration / (100 * MS); w++) {
		double work[MOST] = { 0 }, all = 0;

		for (uint32_t i = 0; i < scene->count; i++)
			for (uint64_t k = 0; k < 10; k++) {
				work[i] += (double)model_stats(m, i)->window[w + k];
				all += (double)model_stats(m, i)->window[w + k];
			}
		for (uint32_t i = 0; i < scene->count; i++) {
			double off = 100 * work[i] / all -
				     100 * scene->entries[i].tenant.min_ppm / reserved;

			off = off < 0 ? -off : off;
			worst = off > worst ? off : worst;
		}
	}
	return worst;
}

static struct result measure(const struct scene *scene, uint32_t can, int alone)
{
	struct model *m = model_open(can, NULL, 1);
	struct result r = { 0 };
	double seconds = (double)scene->duration / 1e9;
	const struct model_host *host;

	for (uint32_t i = 0; i < scene->count; i++) {
		struct model_program program = scene->entries[i].program;

		program.tenant = i;
		program.bound = scene->entries[i].tenant.latency_ns;
		if (program.life_ns)
			program.start_ns = 370 * MS * i;
		if (alone >= 0 && (int)i != alone)
			program.start_ns = UINT64_MAX;
		model_tenant(m, i, scene->entries[i].tenant);
		model_program(m, program);
	}
	model_late(m, scene->late);
	model_run(m, scene->duration);
	if (model_wrong(m)) {
		fprintf(stderr, "slice_life: %s: %s: this is a bug of the core or of the model\n",
			scene->name, model_wrong(m));
		exit(1);
	}
	host = model_host(m);
	r.work = 100 * (double)model_work_ns(m) / (double)scene->duration;
	r.idle = 100 * (double)model_idle_ns(m) / (double)scene->duration;
	r.kept = 100 * (double)model_kept_ns(m) / (double)scene->duration;
	r.worst = scene->shares ? worst_second(m, scene) : 0;
	for (uint32_t i = 0; i < scene->count; i++)
		r.rate[i] = (double)model_stats(m, i)->work_ns / (double)scene->duration;
	if (scene->watched >= 0) {
		const struct model_stats *stats = model_stats(m, (uint32_t)scene->watched);

		for (int k = 0; k < 2; k++) {
			double q = k ? 0.99 : 0.5;

			r.wait[k] = (double)model_quantile(stats->waits, stats->wait_count,
							   SKIP_ROUND, q) /
				    1e6;
			r.rnd[k] = (double)model_quantile(stats->round_ns, stats->round_count,
							  SKIP_ROUND, q) /
				   1e6;
			r.first[k] = (double)model_quantile(stats->first_ns, stats->first_count,
							    SKIP_ROUND, q) /
				     1e6;
			r.between[k] =
				(double)model_quantile(stats->between_ns, stats->between_count,
						       50 * SKIP_ROUND, q) /
				1e6;
		}
	}
	for (uint32_t i = 0; i < scene->count; i++)
		r.tokens[i] = model_stats(m, i)->between_count / seconds;
	r.cpu = 100 * (double)host->busy_ns / (double)scene->duration;
	r.stops = (double)host->stops / seconds;
	r.steps = (double)host->steps / seconds;
	r.wakes = (double)host->wakes / seconds;
	r.looks = (double)host->looks / seconds;
	r.acts = (double)(host->stops + host->resumes + host->sets) / seconds;
	model_close(m);
	return r;
}

static bool aim(bool met, const char *what, double value, double limit)
{
	printf("  %s: %s %.2f, aim %.2f\n", met ? "met" : "NOT MET", what, value, limit);
	return met;
}

static const char *const names[] = { "stock", "log alone", "with queues" };

/* What the users of an engine see, over what they see when it has the GPU for itself. */
static bool show_tokens(const struct scene *scene, const struct result *r,
			const struct result *alone)
{
	double all[3] = { 0 };
	bool met;

	printf("  %-12s %8s %8s %9s %9s   tokens/s\n", "ms", "first50", "first99", "between50",
	       "between99");
	printf("  %-12s %8.1f %8.1f %9.1f %9.1f   %.0f\n", "alone", alone->first[0],
	       alone->first[1], alone->between[0], alone->between[1],
	       alone->tokens[scene->watched]);
	for (int v = 0; v < 3; v++) {
		printf("  %-12s %8.1f %8.1f %9.1f %9.1f  ", names[v], r[v].first[0], r[v].first[1],
		       r[v].between[0], r[v].between[1]);
		for (uint32_t i = 0; i < scene->count; i++) {
			printf(" %.0f", r[v].tokens[i]);
			all[v] += r[v].tokens[i];
		}
		printf("\n");
	}
	met = aim(r[2].first[1] <= scene->first_most * alone->first[1],
		  "p99 of first tokens over alone", r[2].first[1] / alone->first[1],
		  scene->first_most);
	met &= aim(r[2].between[1] <= scene->between_most * alone->between[1],
		   "p99 between tokens over alone", r[2].between[1] / alone->between[1],
		   scene->between_most);
	if (scene->tokens_least > 0)
		met &= aim(all[2] >= scene->tokens_least * all[0], "tokens over stock's",
			   all[2] / all[0], scene->tokens_least);
	return met;
}

static bool show(const struct scene *scene)
{
	static const uint32_t can[] = { 0, LOG_ALONE, ALL };
	struct result r[3], alone[MOST] = { { 0 } };
	double sum[3] = { 0 };
	bool met = true;

	for (uint32_t i = 0; i < scene->count; i++)
		alone[i] = measure(scene, 0, (int)i);
	printf("%s: %s\n", scene->name, scene->what);
	printf("  %-12s %6s %6s %6s %6s %6s %7s %7s %7s %7s %6s %6s %6s %6s %6s %6s\n", "", "work",
	       "sum", "idle", "kept", "worst", "wait50", "wait99", "round50", "round99", "cpu",
	       "stops", "acts", "steps", "wakes", "looks");
	for (int v = 0; v < 3; v++) {
		r[v] = measure(scene, can[v], -1);
		for (uint32_t i = 0; i < scene->count; i++)
			sum[v] += alone[i].rate[i] > 0 ? r[v].rate[i] / alone[i].rate[i] : 0;
		printf("  %-12s %6.1f %6.3f %6.2f %6.2f %6.2f %7.2f %7.2f %7.2f %7.2f %6.2f %6.1f "
		       "%6.1f %6.0f %6.0f %6.0f |",
		       names[v], 100 * r[v].work / r[0].work, sum[v] / sum[0], r[v].idle, r[v].kept,
		       r[v].worst, r[v].wait[0], r[v].wait[1], r[v].rnd[0], r[v].rnd[1], r[v].cpu,
		       r[v].stops, r[v].acts, r[v].steps, r[v].wakes, r[v].looks);
		for (uint32_t i = 0; i < scene->count; i++)
			printf(" %.1f", 100 * r[v].rate[i]);
		printf("\n");
	}
	if (scene->first_most > 0)
		met &= show_tokens(scene, r, &alone[scene->watched]);
	if (scene->idle_most > 0)
		met &= aim(r[2].idle - r[2].kept <= scene->idle_most, "idle less kept, %",
			   r[2].idle - r[2].kept, scene->idle_most);
	if (scene->work_least > 0)
		met &= aim(100 * r[2].work / r[0].work >= scene->work_least, "work, % of stock",
			   100 * r[2].work / r[0].work, scene->work_least);
	if (scene->sum_least > 0)
		met &= aim(sum[2] / sum[0] >= scene->sum_least, "sum over stock", sum[2] / sum[0],
			   scene->sum_least);
	if (scene->worst_most > 0)
		met &= aim(r[2].worst <= scene->worst_most, "worst second, points", r[2].worst,
			   scene->worst_most);
	if (scene->wait_most > 0)
		met &= aim(r[2].wait[1] <= scene->wait_most, "p99 of waits, ms", r[2].wait[1],
			   scene->wait_most);
	if (scene->round_most > 0)
		met &= aim(r[2].rnd[1] <= scene->round_most * alone[scene->watched].rnd[1],
			   "p99 of rounds over alone", r[2].rnd[1] / alone[scene->watched].rnd[1],
			   scene->round_most);
	if (scene->cpu_most > 0)
		met &= aim(r[2].cpu <= scene->cpu_most, "host, % of a CPU", r[2].cpu,
			   scene->cpu_most);
	return met;
}

int main(int argc, char **argv)
{
	bool met = true;
	size_t i;

	for (int k = 1; k < argc; k++) {
		for (i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
			if (!strcmp(argv[k], scenes[i].name))
				break;
		if (i == sizeof(scenes) / sizeof(scenes[0])) {
			fprintf(stderr, "slice_life: no case '%s'; there are", argv[k]);
			for (i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
				fprintf(stderr, " %s", scenes[i].name);
			fprintf(stderr, "\n");
			return 2;
		}
	}
	for (i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		bool wanted = argc == 1;

		for (int k = 1; k < argc; k++)
			wanted = wanted || !strcmp(argv[k], scenes[i].name);
		if (wanted)
			met &= show(&scenes[i]);
	}
	return met ? 0 : 1;
}
