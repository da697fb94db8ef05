/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * permit.h - the host's half of the shared page: what clients write becomes events for the core,
 * what the core answers becomes permits.
 *
 * The page's protocol stands in uapi/rtxg/page.h. This machine is its only reader and its only
 * writer on the host's side. Every host of the core (the daemon, the kernel module, the simulator)
 * drives it: the host gives memory, a timer and a way to wake, and calls in when a doorbell rings,
 * when the timer is due and when an object changes. The host serialises all calls.
 *
 * A page belongs to its client, which may write anything into it at any time. A word is read once
 * for each decision, is only compared with what was seen before, and is never an index or a size.
 *
 * May not: call the system, allocate, read a clock, lock, use floating point, read its own permits
 * back, or choose between tasks.
 */
#ifndef RTXG_PERMIT_H
#define RTXG_PERMIT_H

#include "burst.h"
#include "rtxg_core.h"

struct rtxg_page;
struct permit_task;

enum permit_state {
	PERMIT_FREE,	/* neither has a permit nor wants one */
	PERMIT_WAITING, /* the core knows that it wants one */
	PERMIT_HELD,
	PERMIT_REVOKED, /* called back, and not yet returned */
};

/*
 * Why a lane gets no permit. The core took the last one by force, and the page has shown no
 * progress since: the program is stopped, or hostile. Without this rule, the next permit would stop
 * the others for as long again, and so would each one after it.
 */
enum permit_bar {
	PERMIT_NOT_BARRED,
	PERMIT_BARRED_BUSY, /* until what was in flight has ended */
	PERMIT_BARRED_IDLE, /* until the client launches or rings: nothing was in flight */
};

/* One task on one engine, as the host remembers it. */
struct permit_lane {
	struct permit_task *task;
	struct permit_lane *look_next;
	uint8_t engine;
	uint8_t state;	    /* enum permit_state */
	uint8_t barred;	    /* enum permit_bar */
	bool queued;	    /* in the list of lanes to look at */
	bool again;	    /* the core knows that it wants another permit after this one */
	bool idle_reported; /* HELD with REPORT: COMPLETION was sent, and no launch seen since */
	bool last;	    /* REVOKED: good for one launch all the same, see call_back() */
	bool taken;	    /* HELD, one-shot: the word is taken back, and a launch was in flight */
	uint32_t flags;	    /* RTXG_GRANT_* */
	uint32_t sequence;
	struct permit_burst burst;
	struct permit_lane *burst_next; /* of those whose burst is on */
	uint64_t launches_at;	 /* the page's launches at the grant, or at the last COMPLETION */
	uint64_t completions_at; /* the page's completions when the lane was barred */
	uint64_t claimed_ns;	 /* the page's claim of busy time that was passed on */
	uint64_t counted_ns;	 /* the account's active_ns holds what was claimed until then, */
	uint64_t counted_active; /* and it was this then, */
	uint64_t counted_claim;	 /* and this the claim */
	uint64_t device_seen;	 /* the page's claims that the account has counted */
	uint64_t launches_seen;
	struct rtxg_stats before; /* what the core counted before the task was moved */
};

/* What one account (a vGPU on a GPU) did on one engine, beyond what the core counts. */
struct permit_use {
	uint64_t device_ns, launches; /* claims of all its tasks, also of those that are gone */
	uint32_t waiting;	      /* lanes that wait */
	uint64_t waiting_since;
	uint64_t active_ns; /* for how long a lane waited, or had launched something */
};

struct permit_account {
	uint32_t vgpu; /* the core's number; set by the host */
	struct permit_use engines[RTXG_ENGINES];
};

/* Set by the host before permit_open: id, page, account, params. */
struct permit_task {
	uint32_t id;
	struct rtxg_page *page;
	struct permit_account *account;
	struct permit_account *moving_to; /* NULL: stays */
	struct rtxg_task_params params;
	uint64_t opened_ns;
	uint32_t pool; /* holds or waits for a GPU of this pool; RTXG_NONE: of none */
	uint32_t pool_gpu;
	bool pool_held;
	struct permit_lane lanes[RTXG_ENGINES];
};

/*
 * What the host does for the machine, with its own context as first argument. Called with whatever
 * serialises the host's calls; none may call back into the machine.
 */
struct permit_ops {
	/* wakes the threads that wait on the permit word of that lane */
	void (*wake)(void *host, struct permit_task *task, uint32_t engine);
	/* permit_timer is due then, and at no other time; RTXG_TIME_NEVER: not at all */
	void (*arm)(void *host, uint64_t at_ns);
	/* the task holds pool_gpu of its pool from now on */
	void (*pool_granted)(void *host, struct permit_task *task);
	/* the task is in task->account now, and has left the other for good */
	void (*moved)(void *host, struct permit_task *task, struct permit_account *from);
	/*
	 * whether the word that the device writes for that lane is at this value or past it, in 32
	 * bits; false where it has none. NULL: the host cannot see such words
	 */
	bool (*passed)(void *host, const struct permit_task *task, uint32_t engine, uint64_t value);
	/*
	 * a lane of that engine is likely to get its permit before then, and its client has been
	 * woken to stand ready: the host may do so too, and call permit_interrupt() until then.
	 * NULL: it is awake whenever a permit ends
	 */
	void (*stand_ready)(void *host, uint32_t gpu, uint32_t engine, uint64_t until_ns);
};

struct permit_machine {
	struct rtxg_core *core;
	const struct permit_ops *ops;
	void *host;
	struct permit_task **tasks; /* by number; NULL: none */
	uint32_t tasks_limit, gpus_limit;
	struct permit_lane *looks, **looks_end; /* lanes to look at */
	struct permit_lane *bursts;		/* lanes to look at when look_ns has come */
	uint64_t core_ns, look_ns;		/* when the core, and a burst, want the timer */
	uint64_t armed_ns;
	uint64_t now_ns;	     /* of the call under way */
	struct rtxg_refusal refusal; /* why the last call that failed did */
};

/* tasks: memory for limits->tasks pointers, all NULL. */
void permit_init(struct permit_machine *machine, struct rtxg_core *core,
		 const struct rtxg_limits *limits, struct permit_task **tasks,
		 const struct permit_ops *ops, void *host);

/*
 * now_ns, of all calls: CLOCK_MONOTONIC, ns, read after the lock that serialises the calls was
 * taken: it never runs backwards from one call to the next.
 *
 * An event about objects (GPUs, vGPUs, pools), with all that follows from it. Like all calls here
 * that return int: 0 or a negative errno, and then machine->refusal says why.
 */
int permit_event(struct permit_machine *machine, uint64_t now_ns, const struct rtxg_event *event);

/*
 * A task comes. Its page may have served another host before: what was claimed then is not charged,
 * and no permit of then is good. The words that describe the page are the host's to write.
 */
int permit_open(struct permit_machine *machine, uint64_t now_ns, struct permit_task *task);
/* It goes: what it held or wanted is free at once, and its page is not touched any more. */
void permit_close(struct permit_machine *machine, uint64_t now_ns, struct permit_task *task);
int permit_set(struct permit_machine *machine, uint64_t now_ns, struct permit_task *task,
	       const struct rtxg_task_params *params);
/*
 * Its permits are called back; it moves once nothing of it is in flight (ops->moved). An engine
 * that it has nothing on is free for others until then. The account must stay until then.
 */
void permit_move(struct permit_machine *machine, uint64_t now_ns, struct permit_task *task,
		 struct permit_account *to);

/* The client rang. */
void permit_ring(struct permit_machine *machine, uint64_t now_ns, struct permit_task *task);
/* The host looks at a task by itself, which is no sign of life of the client. */
void permit_look(struct permit_machine *machine, uint64_t now_ns, struct permit_task *task);
/*
 * A device says that something has ended on that engine of a GPU: if that is all that its holder
 * had in flight, the permit goes on to the next, though the holder has not run since. The holder;
 * NULL: that is not known. May be called without need.
 */
struct permit_task *permit_interrupt(struct permit_machine *machine, uint64_t now_ns, uint32_t gpu,
				     uint32_t engine);
/* The armed time has come. */
void permit_timer(struct permit_machine *machine, uint64_t now_ns);
/* Charges what the task used up to now, and counts what it claims. */
void permit_count(struct permit_machine *machine, uint64_t now_ns, struct permit_task *task);

/* A GPU of the pool: answered by ops->pool_granted, perhaps at once. */
int permit_pool_acquire(struct permit_machine *machine, uint64_t now_ns, struct permit_task *task,
			uint32_t pool);
/* Gives the GPU back, or withdraws the request. */
int permit_pool_release(struct permit_machine *machine, uint64_t now_ns, struct permit_task *task);

/* What the core counted of the lane, under all the accounts that the task was in. */
void permit_lane_stats(const struct permit_machine *machine, const struct permit_task *task,
		       uint32_t engine, struct rtxg_stats *stats);
/*
 * For how long a lane of the account wanted the engine: waited for it, or had something in flight.
 * A permit that a pausing program keeps is not wanted meanwhile.
 */
uint64_t permit_active_ns(const struct permit_use *use, uint64_t now);

#endif
