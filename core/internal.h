/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * internal.h - the core's own structures. Not for hosts: they see rtxg_core.h only.
 *
 *   gpu -- engine x 3 --(heaps)-- account = (vGPU, engine) --(heap)-- lane = (entity, engine)
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

enum lane_state {
	LANE_IDLE,	/* wants nothing */
	LANE_WAITING,	/* in its account's heap */
	LANE_HELD,	/* has a permit */
	LANE_IDLE_HELD, /* has a permit with REPORT and reported that nothing is in flight */
	LANE_REVOKING,	/* permit called back, work still in flight */
};

struct lane {
	struct heap_node node; /* in account.waiters */
	uint8_t state;	       /* enum lane_state */
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

struct entity {
	bool open;
	uint32_t id;
	struct vgpu *vgpu;
	struct rtxg_task_params params;
	struct lane lanes[RTXG_ENGINES];

	/* k-FMLP */
	uint32_t pool; /* RTXG_NONE = in none */
	uint32_t pool_gpu;
	uint32_t pool_priority;	 /* of the request */
	uint32_t inherited;	 /* from those it keeps waiting; 0 = nothing */
	uint64_t pool_length_ns; /* critical section */
	uint64_t pool_seq;
	struct entity *pool_next, *pool_prev;
	struct heap_node pool_blocked; /* in the queue's heap by priority, while it waits */
};

/* What one vGPU has on one engine. Every policy keeps its books here. */
struct account {
	struct vgpu *vgpu;
	struct engine *engine;
	struct heap waiters;	   /* lanes */
	struct heap_node ready;	   /* in one of the engine's heaps while somebody waits */
	struct heap_node wake;	   /* CBS: in engine.wakes while a time has to come first */
	struct heap_node patience; /* core timer: the holder is not giving its permit back */
	struct lane *holder;
	struct entity *holder_entity;
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
	struct account *think_next, *think_prev;
	uint64_t idle_since;
	uint64_t think_until;
	uint64_t think_mean;
};

struct vgpu {
	bool used;
	uint32_t id;
	struct gpu *gpu;
	struct rtxg_vgpu_params params;
	uint32_t entities;
	struct account accounts[RTXG_ENGINES];
	struct vgpu *next, *prev; /* on the GPU */
};

struct engine {
	struct gpu *gpu;
	uint32_t index;
	struct heap_node timer; /* in core.timers */
	/* accounts: queue policies: all with waiters; CBS: those with budget, by deadline */
	struct heap ready;
	struct heap leftover;	   /* CBS: the others, by priority and virtual time */
	struct heap wakes;	   /* CBS: accounts whose budget or cap comes back, by time */
	struct account *holder;	   /* the one account with a permit; NULL under null policy */
	struct account *arrived;   /* BAND: who came last */
	struct account *completed; /* BAND: who completed last, not yet looked at */
	/* BAND: who had it last and has not let it go to another */
	struct account *last;
	/* BAND: gets the engine at band_until if nobody takes it before */
	struct account *band_next;
	uint64_t band_until;
	struct account *thinking;
	uint64_t longest;	 /* charge, in the window longest_window */
	uint64_t longest_before; /* in the window before */
	uint64_t longest_window;
	uint64_t vtime;	     /* of the last account served from what is left over */
	uint64_t next_order; /* list places given out */
	uint32_t waiting;    /* lanes that wait */
	uint32_t permits;    /* lanes that hold */
	bool dirty;
	struct engine *next_dirty;
};

struct gpu {
	bool used;
	uint32_t id;
	struct rtxg_gpu_params params;
	uint64_t epoch_ns; /* periods and windows count from here */
	uint64_t reserved_ppm;
	uint32_t vgpu_count;
	uint32_t users; /* vGPUs with an open entity */
	struct vgpu *vgpus, *vgpus_tail;
	struct engine engines[RTXG_ENGINES];
};

struct pool_queue {
	struct entity *head, *tail;
	uint32_t length;
	uint64_t wait_ns; /* sum of the critical sections queued (k-FMLP, l-aware) */
	struct heap blocked;
};

struct pool {
	bool used;
	uint64_t gpu_mask;
	uint32_t members; /* requests, held and waiting */
	struct pool_queue queues[64];
};

struct rtxg_core {
	struct rtxg_limits limits;
	uint64_t now;
	uint64_t armed;	   /* the host's timer */
	uint64_t sequence; /* of arrivals */
	struct heap timers;
	struct engine *dirty_first, *dirty_last;
	struct rtxg_refusal refusal;
	struct gpu *gpus;
	struct vgpu *vgpus;
	struct entity *entities;
	struct pool *pools;

	/* Where the actions of the current step go. */
	struct rtxg_action *actions;
	unsigned int action_count;
	unsigned int action_cap;
};

enum timer_kind { TIMER_ENGINE, TIMER_PATIENCE };

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
void core_mark(struct rtxg_core *core, struct engine *engine);
void core_arm(struct rtxg_core *core, struct heap_node *timer, uint32_t kind, uint64_t at);

/* engine.c */
void engine_init(struct engine *engine, struct gpu *gpu, uint32_t index);
void account_init(struct account *account, struct vgpu *vgpu, struct engine *engine, uint64_t now);
void account_reset(struct account *account, uint64_t now);
void account_place(struct rtxg_core *core, struct account *account);
void account_unplace(struct account *account);
uint64_t lane_key(const struct entity *entity, const struct lane *lane, uint64_t *tie);
void lane_arrive(struct rtxg_core *core, struct entity *entity, uint32_t index, uint64_t since);
void lane_leave_queue(struct rtxg_core *core, struct entity *entity, uint32_t index);
void lane_requeue(struct rtxg_core *core, struct entity *entity, uint32_t index);
void lane_charge(struct rtxg_core *core, struct entity *entity, uint32_t index, uint64_t used_ns);
void lane_release(struct rtxg_core *core, struct entity *entity, uint32_t index);
void account_stop_thinking(struct account *account);
uint64_t engine_longest(struct engine *engine, uint64_t now);
void account_learn(struct account *account, uint64_t pause);
uint32_t account_used_ppm(const struct account *account, uint64_t now);
void engine_schedule(struct rtxg_core *core, struct engine *engine);
void engine_expired(struct rtxg_core *core, struct account *account);
bool engine_other_vgpu_wants(struct engine *engine, const struct account *account, uint64_t now);

/* policy_queue.c: null, fifo, credit, band */
void queue_credit(struct account *account, uint64_t now);
void queue_charge(struct account *account, uint64_t charge, uint64_t now);
void queue_completed(struct account *account, uint64_t now);
struct account *queue_pick(struct engine *engine, uint64_t now, uint64_t *wait_until);

/* policy_cbs.c */
void cbs_reset(struct account *account, uint64_t now);
void cbs_activate(struct account *account, uint64_t now);
void cbs_place(struct account *account, uint64_t now);
void cbs_promote(struct engine *engine, uint64_t now);
void cbs_charge(struct account *account, struct lane *lane, uint64_t all, uint64_t contended,
		uint64_t alone, uint64_t now);
bool cbs_capped(struct account *account, uint64_t now);
bool cbs_leftover_before(const struct account *a, const struct account *b);
struct account *cbs_pick(struct engine *engine, uint64_t now, uint64_t *wait_until);
bool cbs_displaces(struct engine *engine, struct account *holder, struct lane *lane, uint64_t now,
		   uint64_t *look_again);

/* pool.c */
int pool_event(struct rtxg_core *core, const struct rtxg_event *event);
void pool_leave(struct rtxg_core *core, struct entity *entity);
void pool_continue(struct rtxg_core *core);

#endif
