// SPDX-License-Identifier: MIT
/*
 * analysis_model.c - one set of periodic programs beside programs that never leave the GPU alone,
 * on the model GPU of tests/unit/slice_model.h under core/slice. What tests/gpu/cases/admitted.py
 * promises is held against it where there is no GPU.
 *
 * Usage: analysis_model [--visitors ROWS,CALL_US] SEED MS LATENCY_US LATE_US HOG_US[,HOG_US...]
 *	KERNEL_US:PERIOD_US:MIN_PERCENT...
 *     With --visitors there are so many rows of programs that come and go, each for 180 ms, and
 *     calls of the driver wait for its lock up to CALL_US.
 *     SEED places the releases, MS is how long it runs, LATENCY_US the bound of each periodic
 *     program (0: none, and no minimum either). The host comes up to LATE_US too late for 100 ms of
 *     each second. Each HOG_US is a program with kernels of that length back to back.
 * Prints for each periodic program: its jobs, the longest response and the longest wait for the
 * engine, in us; then of its waits: how many there were, how many the core counted, and how many of
 * those were above LATENCY_US as it saw them. Exit status 1 if the core broke a rule of its own, 2
 * for wrong usage, 3 if the core refuses the bound.
 * May not: hold a policy, or measure time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "slice_model.h"

#define US	   MODEL_US
#define MOST_HOGS  4
#define MOST_TASKS 5
#define VISITORS   (MOST_HOGS + MOST_TASKS) /* their tenant */
#define WARM	   20u /* jobs: the core learns how long the work of a program lasts */
#define ALL                                                                     \
	(RTXG_SLICE_CAN_SLICE | RTXG_SLICE_CAN_SUSPEND | RTXG_SLICE_CAN_LEAVE | \
	 RTXG_SLICE_CAN_DEMAND)

struct task {
	unsigned int kernel_us, period_us, min_percent;
};

static uint64_t longest(const uint64_t *times, uint32_t count, uint32_t skip)
{
	return count > skip ? model_quantile(times, count, skip, 1) : 0;
}

/* What the core counted of a tenant's waits, and of those the ones above a bound. */
static uint64_t counted(struct model *m, uint32_t tenant, uint64_t bound, uint64_t *above)
{
	struct rtxg_slice_view view;
	uint64_t all = 0;

	*above = 0;
	if (rtxg_slice_tenant_view(model_core(m), tenant, &view))
		return 0;
	for (uint32_t i = 0; i < RTXG_SLICE_WAITS; i++) {
		all += view.waits[i];
		if (i && rtxg_slice_wait_limit(i - 1) >= bound)
			*above += view.waits[i];
	}
	return all;
}

/*
 * Rows of programs that come and go: each does little, and its driver prepares for a third of its
 * life.
 */
static void visit(struct model *m, unsigned int rows, uint64_t seed)
{
	model_tenant(m, VISITORS, (struct rtxg_slice_tenant){ .weight = 100 });
	for (unsigned int i = 0; i < rows; i++)
		model_program(m, (struct model_program){
					 .tenant = VISITORS,
					 .kernel_ns = 70 * US,
					 .launches = 4,
					 .depth = 4,
					 .cpu_ns = 3 * MODEL_MS,
					 .start_ns = (500 + (seed * 7 + i * 31) % 97) * MODEL_MS,
					 .building_ns = 60 * MODEL_MS,
					 .life_ns = 180 * MODEL_MS,
					 .rest_ns = 20 * MODEL_MS });
}

int main(int argc, char **argv)
{
	unsigned int visitors = 0, calls_us = 0;
	unsigned int hogs[MOST_HOGS], hog_count = 0, count, i;
	struct task tasks[MOST_TASKS];
	uint32_t ids[MOST_TASKS];
	uint64_t seed, end, latency;
	struct model *m;

	if (argc > 2 && !strcmp(argv[1], "--visitors")) {
		if (sscanf(argv[2], "%u,%u", &visitors, &calls_us) != 2 ||
		    visitors > MODEL_PROGRAMS - MOST_HOGS - MOST_TASKS) {
			fprintf(stderr, "analysis_model: --visitors '%s' is not ROWS,CALL_US\n",
				argv[2]);
			return 2;
		}
		argv += 2;
		argc -= 2;
	}
	count = (unsigned int)argc - 6;
	if (argc < 7 || count > MOST_TASKS) {
		fprintf(stderr,
			"usage: analysis_model [--visitors ROWS,CALL_US] SEED MS LATENCY_US "
			"LATE_US HOG_US[,HOG_US...] KERNEL_US:PERIOD_US:MIN_PERCENT...\n");
		return 2;
	}
	seed = strtoull(argv[1], NULL, 10);
	end = strtoull(argv[2], NULL, 10) * MODEL_MS;
	latency = strtoull(argv[3], NULL, 10) * US;
	for (char *word = strtok(argv[5], ","); word && hog_count < MOST_HOGS;
	     word = strtok(NULL, ","))
		hogs[hog_count++] = (unsigned int)strtoul(word, NULL, 10);
	for (i = 0; i < count; i++)
		if (sscanf(argv[6 + i], "%u:%u:%u", &tasks[i].kernel_us, &tasks[i].period_us,
			   &tasks[i].min_percent) != 3 ||
		    !tasks[i].period_us) {
			fprintf(stderr,
				"analysis_model: '%s' is not KERNEL_US:PERIOD_US:MIN_PERCENT\n",
				argv[6 + i]);
			return 2;
		}
	m = model_open(ALL, NULL, seed);
	model_late(m, strtoull(argv[4], NULL, 10) * US);
	for (i = 0; i < hog_count; i++) {
		model_tenant(m, i, (struct rtxg_slice_tenant){ .weight = 100 });
		model_program(m, (struct model_program){ .tenant = i,
							 .kernel_ns = hogs[i] * US,
							 .launches = 1000000,
							 .depth = 4 });
	}
	if (visitors) {
		visit(m, visitors, seed);
		model_slow_calls(m, calls_us * US);
		model_lookout(m);
	}
	model_run(m, MODEL_S);
	for (i = 0; i < count; i++) {
		struct rtxg_slice_tenant params = { .min_ppm = tasks[i].min_percent * 10000,
						    .latency_ns = latency };
		struct rtxg_slice_admission admission;

		if (!latency)
			params.min_ppm = 0;
		if (rtxg_slice_admit(model_core(m), MOST_HOGS + i, &params, &admission)) {
			printf("refused\n");
			model_close(m);
			return 3;
		}
		model_tenant(m, MOST_HOGS + i, params);
	}
	for (i = 0; i < count; i++)
		ids[i] = model_program(m,
				       (struct model_program){ .tenant = MOST_HOGS + i,
							       .kernel_ns = tasks[i].kernel_us * US,
							       .launches = 1,
							       .depth = 4,
							       .bound = latency,
							       .period_ns = tasks[i].period_us * US,
							       .jitter_ns = seed % 3 * 500 * US,
							       .start_ns = MODEL_S });
	model_run(m, MODEL_S + end);
	for (i = 0; i < count; i++) {
		const struct model_stats *stats = model_stats(m, ids[i]);
		uint64_t above, all = counted(m, MOST_HOGS + i, latency, &above);

		printf("%u %llu %llu %u %llu %llu\n",
		       stats->round_count > WARM ? stats->round_count - WARM : 0,
		       (unsigned long long)(longest(stats->round_ns, stats->round_count, WARM) /
					    US),
		       (unsigned long long)(longest(stats->waits, stats->wait_count, WARM) / US),
		       stats->wait_count, (unsigned long long)all, (unsigned long long)above);
	}
	if (model_wrong(m))
		fprintf(stderr, "analysis_model: %s\n", model_wrong(m));
	i = model_wrong(m) != NULL;
	model_close(m);
	return (int)i;
}
