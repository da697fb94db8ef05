/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * rtxg_core.h - the scheduler: events in, actions out.
 *
 * The core decides and never acts. It makes no system call, allocates nothing, reads no clock,
 * takes no lock and uses no floating point, so the same source runs in the daemon, in the kernel
 * module and in the simulator. A host
 *
 *   - gives it memory once (rtxg_core_size, rtxg_core_init),
 *   - turns what happens in the world into events (rtxg_core_step), one at a time, with
 *     non-decreasing time,
 *   - carries out the actions that come back, in order, and holds no policy of its own.
 *
 * The same events at the same times give the same actions, on every host.
 *
 * Units: time in nanoseconds on one monotonic clock of the host's choice; shares in parts per
 * million of an engine's time (ppm, 1 000 000 = the whole engine); priorities 1..99, larger is more
 * important; weights 1..10000.
 *
 * Identifiers (gpu, vgpu, task, pool) are slot numbers below the limits given at start. The host
 * chooses a free one, the core refuses one in use (-EEXIST) or never added (-ENOENT). That keeps a
 * recorded run replayable.
 */
#ifndef RTXG_CORE_H
#define RTXG_CORE_H

#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/limits.h>
#include <linux/stddef.h>
#include <linux/types.h>
#ifndef UINT32_MAX
#define UINT32_MAX U32_MAX
#endif
#ifndef UINT64_MAX
#define UINT64_MAX U64_MAX
#endif
#ifndef INT64_MAX
#define INT64_MAX S64_MAX
#endif
#else
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#include <rtxg/stats.h>

#include "policies.h"

#define RTXG_PPM	 1000000u   /* one whole engine */
#define RTXG_TIME_NEVER	 UINT64_MAX /* "no timer", "no deadline" */
#define RTXG_NONE	 UINT32_MAX /* "no such object" */
#define RTXG_ACTIONS_MIN 8u	    /* room for actions that rtxg_core_step needs */

#define RTXG_PRIORITY_MIN      1u
#define RTXG_PRIORITY_MAX      99u
#define RTXG_WEIGHT_MIN	       1u
#define RTXG_WEIGHT_MAX	       10000u
#define RTXG_WEIGHT_DEFAULT    100u
#define RTXG_PERIOD_MIN_NS     100000ull      /* 100 us */
#define RTXG_PERIOD_MAX_NS     10000000000ull /* 10 s */
#define RTXG_PERIOD_DEFAULT_NS 30000000ull    /* 30 ms, as Gdev */
#define RTXG_AHEAD_MAX_NS      1000000u	      /* 1 ms */
/*
 * A use of an engine that is shorter than so many times ahead_ns is not foreseen: a CPU that stands
 * ready costs more than it saves there.
 */
#define RTXG_AHEAD_WORTH 4u

/*
 * An engine of a GPU. Each is scheduled apart, so that one task's copy overlaps another's kernel.
 */
enum rtxg_engine {
	RTXG_ENGINE_COMPUTE,
	RTXG_ENGINE_COPY_IN,  /* host to device */
	RTXG_ENGINE_COPY_OUT, /* device to host */
	RTXG_ENGINES,
};

/* How the tasks inside one vGPU are ordered. */
enum rtxg_task_policy {
	RTXG_TASK_FIFO, /* order of arrival */
	RTXG_TASK_FP,	/* fixed priority, FIFO among equals */
	RTXG_TASK_EDF,	/* absolute deadline = arrival + relative deadline */
	RTXG_TASK_POLICIES,
};

/* What happens to a credit that leaves [-threshold, threshold], in policies that keep one. */
enum rtxg_overrun {
	/* reset to 0, as Gdev: hoarding forfeits, deep overdraft is forgiven */
	RTXG_OVERRUN_FORGIVE,
	RTXG_OVERRUN_CHARGE, /* clamp to the threshold: an overrun is charged back */
};

struct rtxg_limits {
	uint32_t gpus;	/* 1..64 */
	uint32_t vgpus; /* 1..4096, over all GPUs */
	uint32_t tasks; /* 1..65536, over all vGPUs */
	uint32_t pools; /* 0..64 */
};

struct rtxg_gpu_params {
	uint32_t policy;    /* enum rtxg_gpu_policy */
	uint32_t overrun;   /* enum rtxg_overrun */
	uint64_t period_ns; /* replenishment period of credits; 0 = 30 ms */
	/* window of utilisation; 0 = 1 s */
	uint64_t window_ns;
	uint64_t band_wait_ns; /* wait for a vGPU below its share; 0 = 500 us */
	/*
	 * A vGPU whose task is likely to come back soon after a launch has the engine kept free for
	 * it, if it may go before those who wait (anticipation): for as long as that costs less
	 * than a launch of the others would, by the pauses that the task made lately, and no longer
	 * than this. It pays for the time. 0 = 2 ms, RTXG_TIME_NEVER = do not wait
	 */
	uint64_t think_ns;
	/*
	 * a revoked permit not given back by then is taken (EXPEL); 0 = 2 s, RTXG_TIME_NEVER = wait
	 * for ever
	 */
	uint64_t revoke_timeout_ns;
	uint32_t switch_ppm; /* measured cost of switching: never promised to anyone */
	/*
	 * Where the end of what is on an engine can be foreseen, the next task is alerted so long
	 * before it, and stands ready to launch (ALERT). 0..RTXG_AHEAD_MAX_NS; 0 = it is not
	 */
	uint32_t ahead_ns;
	/*
	 * The next task gets its permit so long before that end, and is woken by it, so that its
	 * work stands in its queue when the end comes. Only if it is of the same vGPU, and none
	 * that could come meanwhile would go before it. 0..RTXG_AHEAD_MAX_NS; 0 = when the engine
	 * is free, and no earlier
	 */
	uint32_t early_ns;
	uint32_t reserved; /* 0 */
};

struct rtxg_vgpu_params {
	uint32_t min_ppm; /* reservation, 0..1 000 000; 0 = none */
	/*
	 * cap, min_ppm..1 000 000; 0 = 1 000 000 (no cap). max == min is a hard server. A
	 * reservation is never held up by the cap
	 */
	uint32_t max_ppm;
	uint32_t weight; /* 1..10000, for what is left over; 0 = 100 */
	/* 1..99: who comes first in what is left over, and for latency; 0 = 1 */
	uint32_t priority;
	uint64_t period_ns; /* server period, 100 us .. 10 s; 0 = 30 ms */
	uint32_t policy;    /* enum rtxg_task_policy */
	uint32_t reserved;  /* 0 */
};

struct rtxg_task_params {
	uint32_t priority;    /* 1..99; 0 = 1 */
	uint32_t reserved;    /* 0 */
	uint64_t runtime_ns;  /* GPU time a job needs; 0 = unknown */
	uint64_t deadline_ns; /* relative; 0 = period; needed for EDF, else ordered last */
	uint64_t period_ns;   /* 0 = sporadic or unknown */
};

enum rtxg_event_type {
	/* nothing new: hand out the actions that did not fit last time */
	RTXG_EV_NONE = 0,
	RTXG_EV_GPU_ADD, /* gpu, gpu_params */
	/*
	 * gpu, gpu_params: waiting tasks are ordered again; permits in force stay until they end
	 */
	RTXG_EV_GPU_SET,
	RTXG_EV_GPU_REMOVE,  /* gpu: -EBUSY while a vGPU is on it */
	RTXG_EV_VGPU_ADD,    /* vgpu, gpu, vgpu_params: admission control */
	RTXG_EV_VGPU_SET,    /* vgpu, vgpu_params: admission control */
	RTXG_EV_VGPU_REMOVE, /* vgpu: -EBUSY while a task is in it */
	RTXG_EV_OPEN,	     /* task, vgpu, task_params */
	RTXG_EV_SET,	     /* task, task_params */
	RTXG_EV_MOVE,	     /* task, vgpu: must be idle on all engines, else -EBUSY */
	RTXG_EV_CLOSE,	     /* task: whatever it held or waited for is released at once */
	RTXG_EV_ARRIVAL,     /* task, engine: wants to launch */
	/* task, engine: does not want to any more (timed out, interrupted) */
	RTXG_EV_CANCEL,
	/*
	 * task, engine: launched again under a permit that it holds and was reported idle on; or
	 * has launched under one that is good for one launch (rtxg_core_unseen_launch)
	 */
	RTXG_EV_BUSY,
	/*
	 * task, engine, used_ns: nothing of its work is left on the engine; a one-shot permit
	 * ends
	 */
	RTXG_EV_COMPLETION,
	/* task, engine, used_ns: a revoked permit was taken back and nothing is in flight */
	RTXG_EV_RELEASED,
	/* task, engine, used_ns: interim report of a permit without REPORT */
	RTXG_EV_USAGE,
	RTXG_EV_TIMER,	     /* the armed time has come */
	RTXG_EV_POOL_ADD,    /* pool, gpu_mask */
	RTXG_EV_POOL_REMOVE, /* pool: -EBUSY while a task holds or waits */
	/*
	 * pool, task: k-FMLP request; answered by RTXG_ACT_POOL_GRANT. priority: 0 = the task's;
	 * used_ns: the length of the use, 0 = the task's runtime_ns
	 */
	RTXG_EV_POOL_REQUEST,
	RTXG_EV_POOL_RELEASE, /* pool, task: release, or withdraw a waiting request */
	RTXG_EV_TYPES,
};

struct rtxg_event {
	uint32_t type; /* enum rtxg_event_type */
	uint32_t gpu;
	uint32_t vgpu;
	uint32_t task;
	uint32_t engine; /* enum rtxg_engine */
	uint32_t pool;
	uint32_t priority;
	uint32_t reserved; /* 0 */
	/*
	 * time on the engine since the last report for this task and engine. What a client says
	 * of itself is not believed beyond the time that has passed
	 */
	uint64_t used_ns;
	uint64_t gpu_mask;
	union {
		struct rtxg_gpu_params gpu_params;
		struct rtxg_vgpu_params vgpu_params;
		struct rtxg_task_params task_params;
	};
};

enum rtxg_action_type {
	/*
	 * task, engine, flags: may launch now. To a holder: its flags change. Two tasks of an
	 * engine have one where early_ns asks for that
	 */
	RTXG_ACT_GRANT = 1,
	/*
	 * task, engine: take the permit back once nothing is in flight, then send RELEASED. One
	 * that a waiting thread was just given and is about to use stays good for that launch
	 */
	RTXG_ACT_REVOKE,
	/*
	 * task, engine: did not give its permit back in time; it neither holds nor waits any more.
	 * Whatever it reports of the old permit is to be dropped, and ARRIVAL is due once the task
	 * has shown that it goes on
	 */
	RTXG_ACT_EXPEL,
	/* at_ns: send RTXG_EV_TIMER then; replaces the one armed before; RTXG_TIME_NEVER disarms */
	RTXG_ACT_ARM_TIMER,
	RTXG_ACT_POOL_GRANT, /* pool, task, gpu: holds that GPU */
	/*
	 * pool, task, priority: while it holds, it runs at no less than this priority (priority
	 * inheritance); 0 = it inherits nothing any more
	 */
	RTXG_ACT_POOL_INHERIT,
	/*
	 * task, engine, gpu, at_ns: waits, and is likely to get the permit before that time,
	 * because what is on the engine is likely to end: a host may keep awake who is to act then.
	 * Nothing depends on it
	 */
	RTXG_ACT_ALERT,
};

/* Flags of a grant. */
#define RTXG_GRANT_ONESHOT (1u << 0) /* good for one launch; ends by COMPLETION */
/* others wait: send COMPLETION whenever nothing is in flight any more */
#define RTXG_GRANT_REPORT (1u << 1)
/* Neither: no other task wants the engine; launch at will, report nothing, until REVOKE. */

struct rtxg_action {
	uint32_t type; /* enum rtxg_action_type */
	uint32_t task;
	uint32_t engine;
	uint32_t flags;
	uint32_t gpu;
	uint32_t pool;
	uint32_t priority;
	uint32_t reserved;
	uint64_t at_ns;
};

/* Why an event was refused, for hosts that explain it to people. */
struct rtxg_refusal {
	const char *what; /* constant text: which rule; NULL when nothing was refused */
	uint64_t value;	  /* what was asked */
	/* what would have been accepted at most (or at least: the text says) */
	uint64_t limit;
};

struct rtxg_core;

/*
 * Bytes of memory that a core with these limits needs, aligned to 16. 0 if a limit is out of range.
 */
size_t rtxg_core_size(const struct rtxg_limits *limits);

/*
 * Builds a core in the caller's memory (not freed by the core; plain memory may be dropped at any
 * time). now_ns is the start of all periods and windows. Returns NULL if mem is NULL, misaligned or
 * smaller than rtxg_core_size.
 */
struct rtxg_core *rtxg_core_init(void *mem, size_t size, const struct rtxg_limits *limits,
				 uint64_t now_ns);

/*
 * One event. Returns how many actions were written (0..cap), or a negative errno, in which case
 * nothing at all has changed:
 *   -EINVAL  a field is out of range, a reserved field is not 0, or time runs backwards
 *   -ENOENT, -EEXIST  the object does not exist, or does already
 *   -EBUSY   the object is in use
 *   -ENOSPC  admission control: the share is not there to give
 *   -EALREADY, -EPERM  the event does not fit the task's state (arrival while waiting; completion
 *                      without a permit)
 * If it returns cap there may be more: call again with RTXG_EV_NONE until it returns less. cap must
 * be at least RTXG_ACTIONS_MIN. O(log n) in tasks and vGPUs, plus O(1) for each action; but
 * GPU_SET is linear in the GPU's vGPUs, VGPU_SET in the limit of tasks, and a launch in the GPU's
 * vGPUs where the policy does not arbitrate.
 */
int rtxg_core_step(struct rtxg_core *core, uint64_t now_ns, const struct rtxg_event *event,
		   struct rtxg_action *actions, unsigned int cap);

/* The reason of the last refusal of rtxg_core_step. */
struct rtxg_refusal rtxg_core_refusal(const struct rtxg_core *core);

/*
 * The task that holds an idle permit on that engine (it reported COMPLETION and the permit
 * stayed), or RTXG_NONE. Before RTXG_EV_TIMER a host looks whether that task has launched again
 * and, if so, sends RTXG_EV_BUSY first.
 */
uint32_t rtxg_core_idle_holder(const struct rtxg_core *core, uint32_t gpu, uint32_t engine);

/*
 * The task that has a permit which is good for one launch, of which no event has said whether it
 * was made, while that counts (early_ns); or RTXG_NONE. Before RTXG_EV_TIMER a host looks and, if
 * so, sends RTXG_EV_BUSY first.
 */
uint32_t rtxg_core_unseen_launch(const struct rtxg_core *core, uint32_t gpu, uint32_t engine);

/*
 * The task that has a permit for that engine, in use, idle or called back; RTXG_NONE: there is
 * none. Of two, the one that has had it for longer.
 */
uint32_t rtxg_core_holder(const struct rtxg_core *core, uint32_t gpu, uint32_t engine);

/* The parameters of a GPU without a configuration; every field has its value. */
struct rtxg_gpu_params rtxg_core_gpu_defaults(void);

/*
 * The GPU that a new task had best use; the lowest number among equals. Of a pool: the one that a
 * new request would get first (k-FMLP's rule: least wait); RTXG_NONE if there is no such pool.
 * Without a pool (RTXG_NONE): the one with the fewest tasks; RTXG_NONE if there is no GPU.
 */
uint32_t rtxg_core_device_advice(const struct rtxg_core *core, uint32_t pool);
/*
 * The task that holds the GPU in whose queue this task waits; RTXG_NONE if the task waits for no
 * GPU of a pool.
 */
uint32_t rtxg_core_pool_holder(const struct rtxg_core *core, uint32_t task);

/*
 * Priorities of tasks in a vGPU. `configured` is the one that its configuration names for them; 0:
 * none, which is RTXG_PRIORITY_MIN. Hosts ask these for each priority that is named.
 */
/* What a task has that asks for this priority; 0: it asks for none. */
uint32_t rtxg_task_priority(uint32_t configured, uint32_t asked);
/*
 * The highest that the task may ask for without the right to raise priorities. A task that has a
 * higher one than is configured was given it, and keeps it.
 */
uint32_t rtxg_task_priority_limit(uint32_t configured, uint32_t has);
bool rtxg_task_priority_allowed(uint32_t limit, uint32_t asked, bool may_raise);
/*
 * What a task has after a move to where the limit is this one: a client without the right to raise
 * priorities takes none there with which the task could not be opened there.
 */
uint32_t rtxg_task_priority_moved(uint32_t limit, uint32_t has, bool may_raise);

void rtxg_stats_add(struct rtxg_stats *sum, const struct rtxg_stats *stats);

struct rtxg_account_view {
	struct rtxg_stats stats;
	int64_t credit_ns;    /* credit or budget left, if the policy keeps one. May be negative */
	uint64_t deadline_ns; /* the server's absolute deadline, if the policy has servers */
	uint32_t used_ppm;    /* utilisation in the current window */
	uint32_t waiting;     /* tasks that wait */
	uint32_t holder;      /* task with a permit, or RTXG_NONE */
	uint32_t tasks;	      /* open tasks (the same for each engine) */
};

int rtxg_core_vgpu_view(const struct rtxg_core *core, uint32_t vgpu, uint32_t engine,
			uint64_t now_ns, struct rtxg_account_view *view);
int rtxg_core_task_stats(const struct rtxg_core *core, uint32_t task, uint32_t engine,
			 struct rtxg_stats *stats);

/*
 * Walks every structure and returns NULL if all invariants hold, else constant text that says which
 * does not. For tests and debugging; linear in the number of objects.
 */
const char *rtxg_core_check(const struct rtxg_core *core);

/*
 * Names as they stand in configuration files and commands ("fp", "compute"); NULL for an unknown
 * value. The summary of a GPU policy is one line that follows its name.
 */
const char *rtxg_gpu_policy_name(uint32_t policy);
const char *rtxg_gpu_policy_summary(uint32_t policy);
const char *rtxg_task_policy_name(uint32_t policy);
const char *rtxg_engine_name(uint32_t engine);

/* The GPU policy of that name, or RTXG_NONE. */
uint32_t rtxg_gpu_policy_find(const char *name);

/* The names of all GPU policies in one text, with a comma after each but the last. */
const char *rtxg_gpu_policy_names(void);

/* Which of a GPU's parameters its policy reads: RTXG_READS_*, 0 for an unknown policy. */
uint32_t rtxg_gpu_policy_reads(uint32_t policy);
#define RTXG_READS_OVERRUN   (1u << 0)
#define RTXG_READS_PERIOD    (1u << 1)
#define RTXG_READS_WINDOW    (1u << 2)
#define RTXG_READS_BAND_WAIT (1u << 3)
#define RTXG_READS_THINK     (1u << 4)

/*
 * Does a vGPU with these parameters get, under that GPU policy, what others leave beyond its
 * reservation? The answer for an unknown policy is that it does.
 */
bool rtxg_gpu_policy_conserving(uint32_t policy, const struct rtxg_vgpu_params *params);

#endif
