/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * internal.h - the core's own structures. Not for hosts: they see rtxg_core.h only.
 *
 *   gpu -- engine x 3 --(heaps)-- account = (vGPU, engine) --(heap)-- lane = (task, engine)
 *
 * Who calls whom: core.c takes an event, checks it, changes objects and marks engines dirty;
 * engine.c then decides for every dirty engine who may launch, asking the policy (policy_queue.c:
 * null, fifo, credit, band; policy_cbs.c) which account is next.
 */
#ifndef RTXG_INTERNAL_H
#define RTXG_INTERNAL_H

#include "rtxg_core.h"
#include "heap.h"

#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif

enum core_lane_state {
	LANE_IDLE,	/* wants nothing */
	LANE_WAITING,	/* in its account's heap */
	LANE_HELD,	/* has a permit */
	LANE_IDLE_HELD, /* has a permit with REPORT and reported that nothing is in flight */
	LANE_REVOKING,	/* permit called back, work still in flight */
};

struct core_lane {
	struct heap_node node; /* in account.waiters */
	uint8_t state;	       /* enum core_lane_state */
	bool again;	       /* wants another permit once this one has ended */
	bool was_idle;	       /* REVOKING: nothing was in flight when it was called back */
	/* CBS: the permit was given out of what is left over, not out of the reservation */
	bool leftover;
	uint32_t flags; /* RTXG_GRANT_* of the permit */
	uint64_t arrived_ns;
	uint64_t again_ns;
	uint64_t granted_ns;
	uint64_t charged_ns; /* accounted up to here */
	/* since then somebody else is kept waiting; RTXG_TIME_NEVER = nobody */
	uint64_t contended_ns;
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

/* What one vGPU has on one engine. Every policy keeps its books here. */
struct core_account {
	struct core_vgpu *vgpu;
	struct core_engine *engine;
	struct heap waiters;	   /* lanes */
	struct heap_node ready;	   /* in one of the engine's heaps while somebody waits */
	struct heap_node wake;	   /* CBS: in engine.wakes while a time has to come first */
	struct heap_node patience; /* core timer: the holder is not giving its permit back */
	struct core_lane *holder;
	struct core_task *holder_task;
	struct rtxg_stats stats;

	uint64_t window;      /* number of the window that window_busy belongs to */
	uint64_t window_busy; /* charged in it */

	/* Queue policies */
	uint64_t order; /* place in the list of vGPUs */
	int64_t credit;
	uint64_t credit_tick; /* ticks already credited */

	/* CBS */
	int64_t budget;
	uint64_t deadline;    /* absolute */
	uint64_t eligible_ns; /* deadline - period: before it the budget may not be touched */
	int64_t cap_budget;
	uint64_t cap_tick;
	uint64_t vtime; /* weighted time taken of what is left over */

	/* Thinking: busy until a moment ago, likely to be back soon */
	bool thinking;
	struct core_account *think_next, *think_prev;
	uint64_t idle_since;
	uint64_t think_until;
	uint64_t think_mean;
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
	/* accounts: queue policies: all with waiters; CBS: those with budget, by deadline */
	struct heap ready;
	struct heap leftover;		/* CBS: the others, by priority and virtual time */
	struct heap wakes;		/* CBS: accounts whose budget or cap comes back, by time */
	struct core_account *holder;	/* the one account with a permit; NULL under null policy */
	struct core_account *arrived;	/* BAND: who came last */
	struct core_account *completed; /* BAND: who completed last, not yet looked at */
	/* BAND: who had it last and has not let it go to another */
	struct core_account *last;
	/* BAND: gets the engine at band_until if nobody takes it before */
	struct core_account *band_next;
	uint64_t band_until;
	struct core_account *thinking;
	uint64_t longest;	 /* charge, in the window longest_window */
	uint64_t longest_before; /* in the window before */
	uint64_t longest_window;
	uint64_t vtime;	     /* of the last account served from what is left over */
	uint64_t next_order; /* list places given out */
	uint32_t waiting;    /* lanes that wait */
	uint32_t permits;    /* lanes that hold */
	bool dirty;
	struct core_engine *next_dirty;
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

/* core.c */
int core_refuse(struct rtxg_core *core, int error, const char *what, uint64_t value,
		uint64_t limit);
struct rtxg_action *core_emit(struct rtxg_core *core, uint32_t type);
void core_mark(struct rtxg_core *core, struct core_engine *engine);
void core_arm(struct rtxg_core *core, struct heap_node *timer, uint32_t kind, uint64_t at);

/* engine.c */
void engine_init(struct core_engine *engine, struct core_gpu *gpu, uint32_t index);
void account_init(struct core_account *account, struct core_vgpu *vgpu, struct core_engine *engine,
		  uint64_t now);
void account_reset(struct core_account *account, uint64_t now);
void account_place(struct rtxg_core *core, struct core_account *account);
void account_unplace(struct core_account *account);
uint64_t lane_key(const struct core_task *task, const struct core_lane *lane, uint64_t *tie);
void lane_arrive(struct rtxg_core *core, struct core_task *task, uint32_t index, uint64_t since);
void lane_leave_queue(struct rtxg_core *core, struct core_task *task, uint32_t index);
void lane_requeue(struct rtxg_core *core, struct core_task *task, uint32_t index);
void lane_charge(struct rtxg_core *core, struct core_task *task, uint32_t index, uint64_t used_ns);
void lane_release(struct rtxg_core *core, struct core_task *task, uint32_t index);
void account_stop_thinking(struct core_account *account);
uint64_t engine_longest(struct core_engine *engine, uint64_t now);
void account_learn(struct core_account *account, uint64_t pause);
uint32_t account_used_ppm(const struct core_account *account, uint64_t now);
void engine_schedule(struct rtxg_core *core, struct core_engine *engine);
void engine_expired(struct rtxg_core *core, struct core_account *account);
bool engine_other_vgpu_wants(struct core_engine *engine, const struct core_account *account,
			     uint64_t now);

/* policy_queue.c: null, fifo, credit, band */
void queue_credit(struct core_account *account, uint64_t now);
void queue_charge(struct core_account *account, uint64_t charge, uint64_t now);
void queue_completed(struct core_account *account, uint64_t now);
struct core_account *queue_pick(struct core_engine *engine, uint64_t now, uint64_t *wait_until);

/* policy_cbs.c */
void cbs_reset(struct core_account *account, uint64_t now);
void cbs_activate(struct core_account *account, uint64_t now);
void cbs_place(struct core_account *account, uint64_t now);
void cbs_promote(struct core_engine *engine, uint64_t now);
void cbs_charge(struct core_account *account, struct core_lane *lane, uint64_t all,
		uint64_t contended, uint64_t alone, uint64_t now);
bool cbs_capped(struct core_account *account, uint64_t now);
bool cbs_leftover_before(const struct core_account *a, const struct core_account *b);
struct core_account *cbs_pick(struct core_engine *engine, uint64_t now, uint64_t *wait_until);
bool cbs_displaces(struct core_engine *engine, struct core_account *holder, struct core_lane *lane,
		   uint64_t now, uint64_t *look_again);

/* pool.c */
int pool_event(struct rtxg_core *core, const struct rtxg_event *event);
void pool_leave(struct rtxg_core *core, struct core_task *task);
void pool_continue(struct rtxg_core *core);

#endif
