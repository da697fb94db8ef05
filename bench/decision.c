// SPDX-License-Identifier: MIT
/*
 * decision.c - the cost of one decision of the core, at 8 and at 1024 tasks, for every policy.
 *
 * All tasks want to launch all the time. A step is one event into the core, with its actions taken
 * out. The steps are those of a saturated GPU: completions (or releases) with the next grant,
 * arrivals, and the timers that the core arms. The same stream runs at both sizes, so the ratio
 * says how the cost grows. Two shapes: a vGPU for each task, and eight vGPUs with the tasks spread
 * over them.
 *
 * Usage: decision [--steps NUMBER]. Prints nanoseconds a step and ratios. Exit status 2 for wrong
 * usage. May not: hold a policy, or sleep.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "rtxg_core.h"

#define KERNEL_NS 100000u
#define ROUNDS	  7

struct lane {
	bool holds;
	bool revoked;
	uint32_t flags;
};

struct bench {
	struct rtxg_core *core;
	void *memory;
	struct lane *lanes;
	uint64_t now;
	uint64_t armed;
	uint64_t steps;
	uint64_t grants;
	uint32_t holder;
	bool null_policy;
	uint32_t tasks;
};

static void step(struct bench *bench, const struct rtxg_event *event)
{
	struct rtxg_action actions[64];
	int count = rtxg_core_step(bench->core, bench->now, event, actions, 64);

	if (count < 0 || count == 64) {
		struct rtxg_refusal refusal = rtxg_core_refusal(bench->core);

		fprintf(stderr,
			"decision: event %u was refused: %s (%d): this is a bug of the benchmark "
			"or of the core\n",
			event->type, refusal.what ? refusal.what : "too many actions", count);
		exit(1);
	}
	bench->steps++;
	for (int i = 0; i < count; i++) {
		struct lane *lane =
			actions[i].task < bench->tasks ? &bench->lanes[actions[i].task] : NULL;

		switch (actions[i].type) {
		case RTXG_ACT_GRANT:
			lane->holds = true;
			lane->flags = actions[i].flags;
			lane->revoked = false;
			bench->holder = actions[i].task;
			bench->grants++;
			break;
		case RTXG_ACT_REVOKE:
			lane->revoked = true;
			break;
		case RTXG_ACT_ARM_TIMER:
			bench->armed = actions[i].at_ns;
			break;
		default:
			break;
		}
	}
}

static void arrive(struct bench *bench, uint32_t task)
{
	step(bench, &(struct rtxg_event){ .type = RTXG_EV_ARRIVAL, .task = task });
}

/* One kernel of the engine's holder, and the holder's next arrival. */
static void turn(struct bench *bench)
{
	uint32_t task = bench->holder;
	struct lane *lane;
	uint64_t end = bench->now + KERNEL_NS;

	while (bench->armed <= end) {
		bench->now = bench->armed > bench->now ? bench->armed : bench->now;
		bench->armed = RTXG_TIME_NEVER;
		step(bench, &(struct rtxg_event){ .type = RTXG_EV_TIMER });
	}
	bench->now = end;
	if (task == RTXG_NONE || !bench->lanes[task].holds)
		return; /* kept free for a moment (band), or every budget is spent */
	lane = &bench->lanes[task];
	if (lane->revoked || (lane->flags & RTXG_GRANT_ONESHOT)) {
		lane->holds = false;
		bench->holder = RTXG_NONE;
		step(bench, &(struct rtxg_event){ .type = lane->revoked ? RTXG_EV_RELEASED
									: RTXG_EV_COMPLETION,
						  .task = task,
						  .used_ns = KERNEL_NS });
		arrive(bench, task);
		return;
	}
	step(bench, &(struct rtxg_event){
			    .type = RTXG_EV_COMPLETION, .task = task, .used_ns = KERNEL_NS });
	if (lane->revoked) {
		lane->holds = false;
		lane->revoked = false;
		if (bench->holder == task)
			bench->holder = RTXG_NONE;
		step(bench, &(struct rtxg_event){ .type = RTXG_EV_RELEASED, .task = task });
		arrive(bench, task);
	}
}

static void build(struct bench *bench, uint32_t policy, uint32_t tasks, uint32_t vgpus)
{
	const struct rtxg_limits limits = { .gpus = 1, .vgpus = vgpus, .tasks = tasks };
	size_t size = rtxg_core_size(&limits);

	*bench = (struct bench){ .armed = RTXG_TIME_NEVER, .holder = RTXG_NONE, .tasks = tasks };
	bench->memory = aligned_alloc(16, size);
	bench->lanes = calloc(tasks, sizeof(*bench->lanes));
	if (!bench->memory || !bench->lanes) {
		fprintf(stderr, "decision: no memory for %zu bytes\n", size);
		exit(1);
	}
	bench->core = rtxg_core_init(bench->memory, size, &limits, 0);
	step(bench,
	     &(struct rtxg_event){ .type = RTXG_EV_GPU_ADD, .gpu_params = { .policy = policy } });
	for (uint32_t v = 0; v < vgpus; v++)
		step(bench, &(struct rtxg_event){ .type = RTXG_EV_VGPU_ADD,
						  .vgpu = v,
						  .vgpu_params = { .min_ppm = RTXG_PPM / vgpus,
								   .policy = RTXG_TASK_FP } });
	for (uint32_t e = 0; e < tasks; e++) {
		step(bench,
		     &(struct rtxg_event){ .type = RTXG_EV_OPEN, .task = e, .vgpu = e % vgpus });
		arrive(bench, e);
	}
}

/* ns a step of one run. */
static double measure(uint32_t policy, uint32_t tasks, uint32_t vgpus, uint64_t steps)
{
	struct bench bench;
	uint64_t begin, first;
	double cost;

	build(&bench, policy, tasks, vgpus);
	for (uint32_t i = 0; i < 4 * tasks; i++)
		/* every task has had a turn: caches and deadlines have settled */
		turn(&bench);
	first = bench.steps;
	bench.grants = 0;
	begin = rtxg_now_ns();
	while (bench.steps - first < steps)
		turn(&bench);
	cost = (double)(rtxg_now_ns() - begin) / (double)(bench.steps - first);
	if (!bench.grants) {
		fprintf(stderr, "decision: nothing was granted: this is a bug of the benchmark or "
				"of the core\n");
		exit(1);
	}
	free(bench.memory);
	free(bench.lanes);
	return cost;
}

int main(int argc, char **argv)
{
	static const uint32_t policies[] = { RTXG_GPU_FIFO, RTXG_GPU_CREDIT, RTXG_GPU_BAND,
					     RTXG_GPU_CBS };
	uint64_t steps = 100000;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--steps") && i + 1 < argc &&
		    strtoull(argv[i + 1], NULL, 10)) {
			steps = strtoull(argv[++i], NULL, 10);
		} else {
			fprintf(stderr,
				"decision: unexpected '%s'; usage: decision [--steps NUMBER]\n",
				argv[i]);
			return 2;
		}
	}
	for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); p++)
		for (int shape = 0; shape < 2; shape++) {
			double small[ROUNDS], large[ROUNDS], few, many;
			char name[64];

			for (int round = 0; round < ROUNDS; round++) {
				small[round] = measure(policies[p], 8, 8, steps);
				large[round] = measure(policies[p], 1024, shape ? 8 : 1024, steps);
			}
			few = bench_median(small, ROUNDS);
			many = bench_median(large, ROUNDS);
			snprintf(name, sizeof(name), "%s, 1024 tasks in %s",
				 rtxg_gpu_policy_name(policies[p]), shape ? "8 vGPUs" : "1024");
			/*
			 * The step is logarithmic if the ratio is that of the logarithms: log 1024
			 * / log 8.
			 */
			bench_report("decision", name, "ns/step", many, few, "8 tasks", "ratio",
				     many / few, 10.0 / 3.0);
			/* And fast enough for a million steps a second. */
			snprintf(name, sizeof(name), "%s, against 1 us a step",
				 rtxg_gpu_policy_name(policies[p]));
			bench_report("decision", name, "ns/step", many, 1000, "bar", "part of it",
				     many / 1000, 1);
		}
	return 0;
}
