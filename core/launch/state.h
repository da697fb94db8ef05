/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * state.h - the core's own structures, and small arithmetic on times. Not for hosts: they see
 * rtxg_core.h only.
 *
 *   gpu -- engine x 3 --(heaps)-- account = (vGPU, engine) --(heap)-- lane = (task, engine)
 *
 * The files stand on floors, and each calls only those below it:
 *
 *   core.c     takes an event, hands out actions            check.c  looks, and changes nothing
 *   objects.c, launch.c, pool.c                             params.c checks what an event asks for
 *   engine.c   who holds an engine's permit, who waits, what is charged
 *   policy_*.c which account comes next
 *   account.c  utilisation, pauses, the longest use of an engine
 *   pauses.c   how long a lane pauses          lengths.c  how long its uses last
 *   actions.c  what goes out: actions, refusals, timers
 *   heap.c
 */
#ifndef RTXG_CORE_STATE_H
#define RTXG_CORE_STATE_H

#include "rtxg_core.h"
#include "heap.h"
#include "lengths.h"
#include "pauses.h"

#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif

enum core_lane_state {
	LANE_IDLE,    /* wants nothing */
	LANE_WAITING, /* in its account's heap */
	/*
	 * has a permit, while that of another is still in use: it is its account's holder, and pays
	 * for its time, once that one has ended. The engine's early task
	 */
	LANE_EARLY,
	LANE_HELD,	/* has a permit */
	LANE_IDLE_HELD, /* has a permit with REPORT and reported that nothing is in flight */
	LANE_REVOKING,	/* permit called back, work still in flight */
};

struct core_lane {
	struct heap_node node; /* in account.waiters */
	uint8_t state;	       /* enum core_lane_state */
	bool again;	       /* wants another permit once this one has ended */
	bool was_idle;	       /* REVOKING: nothing was in flight when it was called back */
	uint32_t flags;	       /* RTXG_GRANT_* of the permit */
	uint64_t arrived_ns;
	uint64_t again_ns;
	uint64_t granted_ns;
	uint64_t charged_ns; /* accounted up to here */
	/* since then others are kept waiting; RTXG_TIME_NEVER = none is */
	uint64_t contended_ns;
	uint64_t idle_since; /* nothing in flight since then: the last pause began, or begins */
	struct core_pauses pauses;
	uint64_t began_ns; /* of the use that is on; NEVER: that was not seen */
	bool launched;	   /* under a permit that is good for this use alone: the host saw it */
	bool followed;	   /* another has had its permit early, beside this use */
	struct core_lengths lengths;
	uint64_t alerted_ns; /* the alert that it was given last goes on until then */
	struct rtxg_stats stats;
};

struct core_task {
	bool open;
	uint32_t id;
	struct core_vgpu *vgpu;
	struct rtxg_task_params params;
	struct core_lane lanes[RTXG_ENGINES];

	/* k-FMLP */
	uint32_t pool; /* RTXG_NONE = in none */
	uint32_t pool_gpu;
	uint32_t pool_priority;	 /* of the request */
	uint32_t inherited;	 /* from those it keeps waiting; 0 = nothing */
	uint64_t pool_length_ns; /* critical section */
	uint64_t pool_seq;
	struct core_task *pool_next, *pool_prev;
	struct heap_node pool_blocked; /* in the queue's heap by priority, while it waits */
};

/* Words of 64 bits that an account and an engine have for the books of their policy. */
#define CORE_BOOKS 8
/* An engine has room for one more of each priority. */
#define CORE_ENGINE_BOOKS (CORE_BOOKS + RTXG_PRIORITY_MAX + 1)

/* What one vGPU has on one engine. */
struct core_account {
	struct core_vgpu *vgpu;
	struct core_engine *engine;
	struct heap waiters;	   /* lanes */
	struct heap_node ready;	   /* in the heap where its policy looks for it */
	struct heap_node wake;	   /* in engine.wakes while a time has to come first */
	struct heap_node patience; /* core timer: the holder is not giving its permit back */
	struct core_lane *holder;
	struct core_task *holder_task;
	struct rtxg_stats stats;
	uint64_t order;		     /* place in the engine's list of vGPUs */
	struct core_lengths lengths; /* of its lanes' uses */

	uint64_t window;      /* number of the window that window_busy belongs to */
	uint64_t window_busy; /* charged in it */

	/*
	 * Thinking: busy until a moment ago. Until think_until it is likely to be back, and until
	 * lends_until what others with a reservation use is lent by it.
	 */
	bool thinking;
	struct core_account *think_next, *think_prev;
	struct core_lane *thinker; /* the lane that is likely to be back */
	uint64_t think_until, lends_until;

	uint64_t books[CORE_BOOKS]; /* the policy's: see core_books() */
};

struct core_vgpu {
	bool used;
	uint32_t id;
	struct core_gpu *gpu;
	struct rtxg_vgpu_params params;
	uint32_t tasks;
	struct core_account accounts[RTXG_ENGINES];
	struct core_vgpu *next, *prev; /* on the GPU */
};

struct core_engine {
	struct core_gpu *gpu;
	uint32_t index;
	struct heap_node timer; /* in core.timers */
	const struct core_policy *policy;
	struct heap ready; /* accounts that may go, as their policy orders them */
	struct heap wakes; /* accounts for which a time has to come first, by that time */
	struct core_account
		*holder; /* the one account with a permit; NULL if the policy is shared */
	/* Since the last decision: the last account to begin to wait or to wait more */
	struct core_account *arrived;
	struct core_account *ended; /* and the last one whose permit has ended */
	struct core_task *early;    /* its lane has the next permit already; NULL: none has */
	struct core_account *thinking;
	/* of those that think, the one that the engine is kept free for, and since when */
	struct core_account *awaited;
	uint64_t awaited_ns;
	uint64_t longest;	 /* charge, in the window longest_window */
	uint64_t longest_before; /* in the window before */
	uint64_t longest_window;
	uint64_t next_order; /* list places given out */
	uint32_t waiting;    /* lanes that wait */
	uint32_t permits;    /* lanes that hold */
	bool dirty;
	struct core_engine *next_dirty;
	uint64_t books[CORE_ENGINE_BOOKS]; /* the policy's: see core_books() */
};

struct core_gpu {
	bool used;
	uint32_t id;
	struct rtxg_gpu_params params;
	uint64_t epoch_ns; /* periods and windows count from here */
	uint64_t reserved_ppm;
	uint32_t vgpu_count;
	uint32_t users; /* vGPUs with an open task */
	struct core_vgpu *vgpus, *vgpus_tail;
	struct core_engine engines[RTXG_ENGINES];
};

struct core_pool_queue {
	struct core_task *head, *tail;
	uint32_t length;
	uint64_t wait_ns; /* sum of the critical sections queued (k-FMLP, l-aware) */
	struct heap blocked;
};

struct core_pool {
	bool used;
	uint64_t gpu_mask;
	uint32_t members; /* requests, held and waiting */
	struct core_pool_queue queues[64];
};

struct rtxg_core {
	struct rtxg_limits limits;
	uint64_t now;
	uint64_t armed;	   /* the host's timer */
	uint64_t sequence; /* of arrivals */
	struct heap timers;
	struct core_engine *dirty_first, *dirty_last;
	struct rtxg_refusal refusal;
	struct core_gpu *gpus;
	struct core_vgpu *vgpus;
	struct core_task *tasks;
	struct core_pool *pools;

	/* Where the actions of the current step go. */
	struct rtxg_action *actions;
	unsigned int action_count;
	unsigned int action_cap;
};

enum core_timer_kind { TIMER_ENGINE, TIMER_PATIENCE };

#define NEVER RTXG_TIME_NEVER

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* a + b, staying at NEVER */
static inline uint64_t add_time(uint64_t a, uint64_t b)
{
	return a > NEVER - b ? NEVER : a + b;
}

/* ns * from / to for shares of at most RTXG_PPM, staying at NEVER */
static inline uint64_t scale_time(uint64_t ns, uint64_t from_ppm, uint64_t to_ppm)
{
	if (ns / to_ppm >= NEVER / RTXG_PPM)
		return NEVER;
	return add_time(ns / to_ppm * from_ppm, ns % to_ppm * from_ppm / to_ppm);
}

/* The time between it and now becomes what the one share takes for as much as the other had. */
static inline uint64_t move_time(uint64_t at, uint64_t now, uint64_t from_ppm, uint64_t to_ppm)
{
	if (at > now)
		return add_time(now, scale_time(at - now, from_ppm, to_ppm));
	return now - min_u64(now, scale_time(now - at, from_ppm, to_ppm));
}

#endif
