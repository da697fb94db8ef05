/* SPDX-License-Identifier: MIT */
/*
 * slice_model.h - a model of a GPU, of the programs on it, and of a host that drives core/slice.
 * Every time is computed and none is measured: the same run each time, on any machine.
 *
 * The GPU gives enabled contexts that have work their slices in turn. A stay that is cut ends with
 * 95 us of saving, the next begins 84 us later, also on an engine that is free, and a context that
 * no other displaces stays: what an H200 does, where it loses 8 % to switching among four. Programs
 * launch kernels in a loop: see struct model_program. The host takes as long over an action as the
 * driver does (500 us to stop one, 300 us to let one go, 900 us for a slice; less for each further
 * one in a call), looks into queues when the core asks for it, and reads the log when the core's
 * timer comes.
 */
#ifndef RTXG_TESTS_SLICE_MODEL_H
#define RTXG_TESTS_SLICE_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include "rtxg_slice.h"

/*
 * How many sets are drawn where no number is given. Under AddressSanitizer each takes four times as
 * long, and a part of them shows what it looks for.
 */
#ifdef __SANITIZE_ADDRESS__
#define MODEL_SETS(all, some) (some)
#else
#define MODEL_SETS(all, some) (all)
#endif

#define MODEL_US       1000ull
#define MODEL_MS       1000000ull
#define MODEL_S	       1000000000ull
#define MODEL_PROGRAMS 64
#define MODEL_TENANTS  16
#define MODEL_WINDOWS  1024 /* of 100 ms */
#define MODEL_WAITS    16384
#define MODEL_TOKENS   131072
#define MODEL_SLOTS    16

/*
 * A round of a program: `launches` kernels of kernel_ns, at most `depth` of them in its queue; it
 * waits for the last and computes for cpu_ns on its CPU. After `burst` rounds it pauses. Times of
 * the CPU and of pauses are random, each between half and one and a half, or between the two given.
 * With a period a round is released at each multiple of it, and up to jitter_ns later.
 *
 * With requests_per_s it serves requests that come at random, as an engine of a language model
 * does: it reads the prompt of one that waits (`launches` kernels of kernel_ns), then makes one
 * token for each of those that run (one kernel of step_ns, at most `slots` of them), and so on. A
 * request is over after `tokens` tokens.
 */
struct model_collective;

struct model_program {
	uint32_t tenant;
	uint64_t kernel_ns;
	uint32_t launches, depth, burst;
	uint32_t vary; /* a round has up to so many percent more launches, or less */
	uint64_t cpu_ns, pause_min_ns, pause_max_ns;
	uint64_t period_ns, jitter_ns;
	uint64_t step_ns;
	uint32_t requests_per_s, slots, tokens;
	uint64_t start_ns, life_ns; /* it ends after so long and another begins; 0 = it stays */
	uint64_t rest_ns;	    /* between one that ended and the next */
	uint64_t building_ns; /* its driver prepares so long, and refuses actions a little longer */
	/*
	 * Of a training on several GPUs: each second kernel is a collective that takes
	 * collective_ns, and gets on only while those of all other ranks are on their engines.
	 */
	struct model_collective *with;
	uint32_t rank;
	uint64_t collective_ns;
	/*
	 * After each stall_every kernels its queue, though filled, waits for so long off the
	 * engine, as for another program's event; 0 = never.
	 */
	uint32_t stall_every;
	uint64_t stall_ns;
	bool bound;  /* its tenant has a latency */
	bool unseen; /* its queues cannot be looked into */
	/*
	 * What waits in its queues is seen while it is not on the engine, as on a card: the
	 * engine's host takes nothing then. Else it has taken up to two launches.
	 */
	bool waits_seen;
	bool refused; /* the driver refuses all actions for good */
};

struct model_stats {
	uint64_t work_ns, rounds, bursts;
	uint64_t useful_ns; /* of its work, what was not spent waiting for other ranks */
	/* for so long at most it had work and was not on the engine, and when that ended */
	uint64_t longest_ns, longest_at;
	uint64_t window[MODEL_WINDOWS]; /* work in each 100 ms */
	/* from the arrival of work in empty queues until it is on the engine; rounds */
	uint64_t waits[MODEL_WAITS], round_ns[MODEL_WAITS];
	uint32_t wait_count, round_count;
	/*
	 * The longest of those waits that the tenant's bound is for, when it ended and how many
	 * there were: the tenant was not too far ahead of its share and was on the engine in the
	 * last second, no program has just come, and slices have had 20 ms to be set.
	 */
	uint64_t bound_wait, bound_wait_at;
	uint32_t bound_count;
	/* of requests: from arrival to the first token, and between tokens */
	uint64_t first_ns[MODEL_WAITS], between_ns[MODEL_TOKENS];
	uint32_t first_count, between_count;
};

struct model_host {
	uint64_t stops, resumes, sets, steps, wakes, reads, looks, busy_ns, refusals;
	/*
	 * The longest time from the timer to when the host came, for it was carrying out actions,
	 * and when that was; without what model_late() adds.
	 */
	uint64_t late_most_ns, late_most_at;
};

struct model;

/* The next of the numbers below 2^31 that follow from a seed: the same on each machine. */
uint64_t model_next_random(uint64_t *seed);

/* can: RTXG_SLICE_CAN_*; 0 is the stock driver. */
struct model *model_open(uint32_t can, const struct rtxg_slice_params *params, uint64_t seed);
void model_close(struct model *m);
/* For 100 ms of each second the host's timer comes late, by half of this time to all of it. */
void model_late(struct model *m, uint64_t late_ns);
/*
 * Calls of the driver wait for its lock, which programs that come and go hold: each takes up to so
 * much longer, mostly little. With 30 ms that is much like an H100 beside three rows of programs
 * that each make a context and end: three of four calls 1 ms or less, one of 100 above 26 ms, the
 * longest about 120 ms.
 */
void model_slow_calls(struct model *m, uint64_t most_ns);
/* From now on queues are looked into while a call lasts too, and all of it is told after it. */
void model_lookout(struct model *m);
void model_tenant(struct model *m, uint32_t id, struct rtxg_slice_tenant params);
/* Its tenant is on other GPUs too: other models that are run beside this one (slice_gpus.h). */
void model_couple(struct model *m, uint32_t tenant, bool coupled);
uint32_t model_program(struct model *m, struct model_program program);
void model_run(struct model *m, uint64_t until_ns);

struct rtxg_slice *model_core(struct model *m);
const struct model_stats *model_stats(const struct model *m, uint32_t program);
const struct model_host *model_host(const struct model *m);
/* For how long the engine had nothing to do while a stopped context had work. */
uint64_t model_idle_ns(const struct model *m);
/* Of that, the part in which a program with a latency was between two rounds of a burst. */
uint64_t model_kept_ns(const struct model *m);
/* For how long the engine had nothing to do at all, switching left out. */
uint64_t model_free_ns(const struct model *m);
uint64_t model_work_ns(const struct model *m); /* of all programs */
/* The q-th part of a list of times, 0 to 1, those from `skip` on. */
uint64_t model_quantile(const uint64_t *times, uint32_t count, uint32_t skip, double q);
/* What the core found wrong, and when; NULL: nothing. */
const char *model_wrong(const struct model *m);

/*
 * From now on each event that comes while the log holds what the core has not been told is tried
 * with that told first, too.
 */
void model_judge(struct model *m);
/*
 * Of the events so judged on which the core stopped one or let one go, how many; *judged: on how
 * many it did so at all. With the log told it would have left all as it was.
 */
uint64_t model_hasty(const struct model *m, uint64_t *judged);

#endif
