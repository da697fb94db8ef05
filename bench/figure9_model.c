// SPDX-License-Identifier: MIT
/*
 * figure9_model.c - figure 9 of Linux-RTXG on a model: what the gate costs 1 to 8 tasks that copy
 * in, compute and copy out, ten times each, beside the same tasks without a gate. The gate is the
 * core and its permit machine; the GPU, the CPUs' wake-ups and the programs are the model's, by
 * what an H200 and its virtual machine showed.
 *
 * Usage: figure9_model [AHEAD_US EARLY_US [ROUNDS]]
 * Prints a line for each number of tasks, and adds it to $RTXG_BENCH_DIR/figure9_model.json.
 * May not: hold a policy, or measure time.
 */
#include <string.h>

#include "bench.h"
#include "permit.h"
#include "rtxg/page.h"

#define US	      1000ull
#define NEVER	      RTXG_TIME_NEVER
#define MOST_TASKS    8u
#define MOST_ROUNDS   101u
#define JOBS	      10u
#define KERNEL_NS     (1000 * US)
#define COPY_NS	      (25 * US)
#define SWITCH_NS     (130 * US) /* from one context's kernel to another's */
#define SUBMIT_NS     (6 * US)	 /* from a permit to when the device has the work */
#define SEEN_NS	      (4 * US)	 /* from the end of work to when a program knows */
#define LOOK_NS	      (1 * US)	 /* until one that looks at a word sees it */
#define HANDLE_NS     (3 * US)	 /* what the host takes for an event */
#define CALL_NS	      (2 * US)	 /* a program's system call */
#define READY_MOST_NS (3000 * US)

/*
 * To be woken takes a CPU longer the longer it slept, and now and then much longer: it was taken
 * from the virtual machine meanwhile.
 */
#define POLL_NS	    (8 * US)
#define SHORT_NS    (200 * US)	/* of sleep: the CPU has not halted yet */
#define WAKE_NS	    (45 * US)	/* more, if it has */
#define DEEP_NS	    (50 * US)	/* more, after a long sleep */
#define LONG_NS	    (1500 * US) /* such a sleep */
#define JITTER_NS   (30 * US)
#define TAKEN_NS    (250 * US)
#define TAKEN_EVERY 40u

enum doing {
	BEGINS,	  /* is about to use the engine */
	SLEEPS,	  /* for a permit */
	LOOKS,	  /* at the permit's word, until then */
	WOKEN,	  /* is on its way out of a sleep */
	SUBMITS,  /* has its permit */
	COMPUTES, /* its work is on the device, until then */
	ENDED,
};

struct program {
	enum doing doing;
	uint64_t at; /* when it does what is next; NEVER: when it is woken */
	uint64_t slept_at;
	uint32_t engine, job;
	uint64_t ended_at;
};

static struct {
	bool gated;
	uint64_t now;
	uint64_t random;
	/* the GPU */
	uint64_t free_from[RTXG_ENGINES];
	uint32_t context; /* of the last kernel */
	struct program programs[MOST_TASKS];
	/* the host */
	uint64_t rung[MOST_TASKS]; /* when that doorbell is heard; NEVER: it did not ring */
	uint64_t armed, awake_at, ready_until;
	uint64_t slept_at;
	struct permit_machine machine;
	struct rtxg_core *core;
	struct permit_task *table[MOST_TASKS], tasks[MOST_TASKS];
	struct permit_account account;
	struct rtxg_page pages[MOST_TASKS];
	unsigned int handed, early; /* kernels, and those that were in their queue in time */
} w;

/* --- chance ---------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t below)
{
	w.random = w.random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)((w.random >> 33) % below);
}

static uint64_t wake_up(uint64_t slept)
{
	uint64_t ns = POLL_NS;

	if (slept > SHORT_NS)
		ns += WAKE_NS + draw(JITTER_NS);
	if (slept > LONG_NS)
		ns += DEEP_NS;
	if (!draw(TAKEN_EVERY))
		ns += draw(TAKEN_NS);
	return ns;
}

/* --- what the machine asks of its host -------------------------------------------------------- */

static void wake(void *host, struct permit_task *task, uint32_t engine)
{
	struct program *p = &w.programs[task->id];

	if (p->engine != engine)
		return;
	if (p->doing == LOOKS) {
		p->doing = WOKEN;
		p->at = w.now + LOOK_NS;
	} else if (p->doing == SLEEPS) {
		p->doing = WOKEN;
		p->at = w.now + wake_up(w.now - p->slept_at);
	}
}

static void arm(void *host, uint64_t at_ns)
{
	w.armed = at_ns;
}

static void pool_granted(void *host, struct permit_task *task)
{
}

static void moved(void *host, struct permit_task *task, struct permit_account *from)
{
}

static void stand_ready(void *host, uint32_t gpu, uint32_t engine, uint64_t until_ns)
{
	w.ready_until = until_ns;
}

static const struct permit_ops ops = {
	.wake = wake,
	.arm = arm,
	.pool_granted = pool_granted,
	.moved = moved,
	.stand_ready = stand_ready,
};

/* --- a program -------------------------------------------------------------------------------- */

static struct rtxg_lane *lane_of(uint32_t id)
{
	return &w.pages[id].lanes[w.programs[id].engine];
}

static void ring(uint32_t id)
{
	if (w.rung[id] == NEVER)
		w.rung[id] = w.now + CALL_NS;
}

static bool take_permit(struct rtxg_lane *lane, bool waited)
{
	if (!(lane->permit & RTXG_PERMIT_GRANTED))
		return false;
	lane->busy_since = lane->in_flight ? lane->busy_since : w.now;
	lane->in_flight++;
	if (lane->permit & RTXG_PERMIT_ONESHOT)
		lane->permit &= ~RTXG_PERMIT_GRANTED;
	if (waited)
		lane->want--;
	lane->launches++;
	return true;
}

static void submit(uint32_t id)
{
	struct program *p = &w.programs[id];
	uint64_t *free_from = &w.free_from[p->engine];
	uint64_t begin = *free_from > w.now ? *free_from : w.now;

	if (p->engine == RTXG_ENGINE_COMPUTE) {
		w.handed++;
		w.early += *free_from >= w.now;
		if (w.context != id)
			begin += SWITCH_NS;
		w.context = id;
		*free_from = begin + KERNEL_NS;
	} else {
		*free_from = begin + COPY_NS;
	}
	p->doing = COMPUTES;
	p->at = *free_from + SEEN_NS;
}

static void complete(uint32_t id)
{
	struct rtxg_lane *lane = lane_of(id);

	lane->busy_ns += w.now - lane->busy_since;
	lane->busy_since = 0;
	lane->completions++;
	lane->in_flight--;
	if (!(lane->permit & RTXG_PERMIT_GRANTED) || lane->permit & RTXG_PERMIT_REPORT)
		ring(id);
}

static void wait_for_permit(uint32_t id)
{
	struct rtxg_lane *lane = lane_of(id);
	struct program *p = &w.programs[id];

	if (take_permit(lane, true)) {
		p->doing = SUBMITS;
		p->at = w.now + SUBMIT_NS;
	} else if (lane->permit & RTXG_PERMIT_READY && w.now < lane->ready_until) {
		p->doing = LOOKS;
		p->at = lane->ready_until < w.now + READY_MOST_NS ? lane->ready_until
								  : w.now + READY_MOST_NS;
	} else {
		p->doing = SLEEPS;
		p->slept_at = w.now;
		p->at = NEVER;
	}
}

/* A job is a copy in, a kernel, a copy out. */
static void next_piece(uint32_t id)
{
	static const uint32_t after[] = { [RTXG_ENGINE_COPY_IN] = RTXG_ENGINE_COMPUTE,
					  [RTXG_ENGINE_COMPUTE] = RTXG_ENGINE_COPY_OUT,
					  [RTXG_ENGINE_COPY_OUT] = RTXG_ENGINE_COPY_IN };
	struct program *p = &w.programs[id];

	if (w.gated)
		complete(id);
	p->job += p->engine == RTXG_ENGINE_COPY_OUT;
	p->engine = after[p->engine];
	p->doing = p->job == JOBS ? ENDED : BEGINS;
	p->at = p->job == JOBS ? NEVER : w.now + (w.gated ? CALL_NS : 0);
	p->ended_at = w.now;
}

static void act(uint32_t id)
{
	struct program *p = &w.programs[id];

	switch (p->doing) {
	case BEGINS:
		p->doing = SUBMITS;
		p->at = w.now + SUBMIT_NS;
		if (!w.gated || take_permit(lane_of(id), false))
			break;
		lane_of(id)->want++;
		ring(id);
		wait_for_permit(id);
		break;
	case LOOKS:
	case WOKEN:
		wait_for_permit(id);
		break;
	case SUBMITS:
		submit(id);
		break;
	case COMPUTES:
		next_piece(id);
		break;
	default:
		break;
	}
}

/* --- the host --------------------------------------------------------------------------------- */

static uint64_t min_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* When the host has something to do, if it were awake. */
static uint64_t host_due(uint32_t tasks)
{
	uint64_t at = w.armed;

	for (uint32_t i = 0; i < tasks; i++)
		at = min_of(at, w.rung[i]);
	return at;
}

/* It sleeps unless it stands ready; who is asleep has to be woken first. */
static void host_acts(uint32_t tasks)
{
	if (w.awake_at == NEVER) {
		w.awake_at = w.now + (w.now < w.ready_until ? 0 : wake_up(w.now - w.slept_at));
		return;
	}
	for (uint32_t i = 0; i < tasks; i++)
		if (w.rung[i] <= w.now) {
			w.rung[i] = NEVER;
			permit_ring(&w.machine, w.now, &w.tasks[i]);
			w.awake_at = w.now + HANDLE_NS;
			return;
		}
	if (w.armed <= w.now) {
		w.armed = NEVER;
		permit_timer(&w.machine, w.now);
		w.awake_at = w.now + HANDLE_NS;
		return;
	}
	w.awake_at = NEVER;
	w.slept_at = w.now;
}

/* --- a run ------------------------------------------------------------------------------------ */

static void open_world(uint32_t tasks, uint32_t ahead_ns, uint32_t early_ns)
{
	const struct rtxg_limits limits = { .gpus = 1, .vgpus = 1, .tasks = MOST_TASKS };
	struct rtxg_event gpu = { .type = RTXG_EV_GPU_ADD, .gpu_params = rtxg_core_gpu_defaults() };
	struct rtxg_event vgpu = { .type = RTXG_EV_VGPU_ADD };
	size_t size = rtxg_core_size(&limits);

	w.core = rtxg_core_init(aligned_alloc(16, size), size, &limits, w.now);
	permit_init(&w.machine, w.core, &limits, w.table, &ops, NULL);
	gpu.gpu_params.policy = RTXG_GPU_BAND;
	gpu.gpu_params.ahead_ns = ahead_ns;
	gpu.gpu_params.early_ns = early_ns;
	if (permit_event(&w.machine, w.now, &gpu) || permit_event(&w.machine, w.now, &vgpu))
		exit(1);
	for (uint32_t i = 0; i < tasks; i++) {
		w.tasks[i] =
			(struct permit_task){ .id = i, .page = &w.pages[i], .account = &w.account };
		if (permit_open(&w.machine, w.now, &w.tasks[i]))
			exit(1);
	}
}

/* ms that a job takes, on average over all tasks. */
static double run(uint32_t tasks, bool gated, uint32_t ahead_ns, uint32_t early_ns, uint64_t seed)
{
	double sum = 0;
	uint64_t begin;

	memset(&w, 0, sizeof(w));
	w.now = begin = w.slept_at = 1000000 * US;
	w.random = seed * 2654435761u + 1;
	w.context = MOST_TASKS;
	w.gated = gated;
	w.armed = w.awake_at = NEVER;
	for (uint32_t i = 0; i < MOST_TASKS; i++)
		w.rung[i] = NEVER;
	if (gated)
		open_world(tasks, ahead_ns, early_ns);
	for (uint32_t i = 0; i < tasks; i++)
		w.programs[i] = (struct program){ .engine = RTXG_ENGINE_COPY_IN,
						  .at = w.now + draw(40 * US) };
	for (;;) {
		uint64_t host = gated ? host_due(tasks) : NEVER, next = NEVER;

		/* awake, or not yet: what is due waits for it */
		if (w.awake_at != NEVER)
			host = w.awake_at;
		for (uint32_t i = 0; i < tasks; i++)
			next = min_of(next, w.programs[i].at);
		if (next == NEVER && host == NEVER)
			break;
		w.now = min_of(next, host) > w.now ? min_of(next, host) : w.now;
		if (host <= next) {
			host_acts(tasks);
			continue;
		}
		for (uint32_t i = 0; i < tasks; i++)
			if (w.programs[i].at <= w.now)
				act(i);
	}
	for (uint32_t i = 0; i < tasks; i++) {
		if (w.programs[i].doing != ENDED) {
			fprintf(stderr, "figure9_model: task %u waits for ever\n", i);
			exit(1);
		}
		sum += (double)(w.programs[i].ended_at - begin) / 1e6 / JOBS;
	}
	if (gated)
		free(w.core);
	return sum / tasks;
}

static double median_of(unsigned int rounds, uint32_t tasks, bool gated, uint32_t ahead,
			uint32_t early, double *in_time)
{
	double ms[MOST_ROUNDS], part = 0;

	for (unsigned int i = 0; i < rounds; i++) {
		ms[i] = run(tasks, gated, ahead, early, i + 1);
		part += (double)w.early / w.handed / rounds;
	}
	if (in_time)
		*in_time = part;
	return bench_median(ms, rounds);
}

int main(int argc, char **argv)
{
	uint32_t ahead = (uint32_t)(argc > 2 ? strtoul(argv[1], NULL, 10) : 200) * (uint32_t)US;
	uint32_t early = (uint32_t)(argc > 2 ? strtoul(argv[2], NULL, 10) : 500) * (uint32_t)US;
	unsigned int rounds = argc > 3 ? (unsigned int)strtoul(argv[3], NULL, 10) : 51;
	static const uint32_t tasks[] = { 1, 2, 4, 8 };

	if (!rounds || rounds > MOST_ROUNDS || argc == 2) {
		fprintf(stderr, "usage: figure9_model [AHEAD_US EARLY_US [ROUNDS]]\n");
		return 2;
	}
	for (unsigned int i = 0; i < sizeof(tasks) / sizeof(tasks[0]); i++) {
		double stock = median_of(rounds, tasks[i], false, 0, 0, NULL), in_time;
		double plain = median_of(rounds, tasks[i], true, 0, 0, NULL);
		double ready = median_of(rounds, tasks[i], true, ahead, 0, NULL);
		double gate = median_of(rounds, tasks[i], true, ahead, early, &in_time);
		char name[64];

		snprintf(name, sizeof(name), "figure 9 on the model, %u task%s", tasks[i],
			 tasks[i] > 1 ? "s" : "");
		bench_report("figure9_model", name, "ms", gate, stock, "vanilla", "ratio",
			     gate / stock, tasks[i] <= 4 ? 1.02 : 1.05);
		printf("    without --early %.3f, without --ahead %.3f; %.0f %% of kernels were in "
		       "their queue in time\n",
		       ready / stock, plain / stock, 100 * in_time);
	}
	return 0;
}
