/* SPDX-License-Identifier: MIT */
/*
 * slice_model_internal.h - what the files of the model GPU share: slice_model.c (the GPU and its
 * host), slice_programs.c (the programs on it), slice_gpus.c (several GPUs at once).
 */
#ifndef RTXG_TESTS_SLICE_MODEL_INTERNAL_H
#define RTXG_TESTS_SLICE_MODEL_INTERNAL_H

#include "slice_model.h"

#define US	 MODEL_US
#define MS	 MODEL_MS
#define STEP	 (10 * US)
#define SAVE	 (95 * US)
#define GAP	 (84 * US)
#define AHEAD	 2 /* launches that the engine's host takes ahead of the engine */
#define PENDING	 512
#define LOG_ROOM 65536
#define SEEN	 8192
#define PATIENCE (1200 * US) /* before queues are looked into during a call */
/* one of so many calls may last so many times as long as the others */
#define LONG_CALLS 400
#define LONG_CALL  4
#define WAKE_COST  (8 * US) /* of the host's CPU: to wake up, and to decide */
#define LOOK_COST  (1 * US)
#define NO_PROCESS (-1)
#define STOCK	   (2 * MS)
#define REFUSES	   (3 * MS) /* so long into its work the driver still refuses actions */
#define FIRST_LOOK (3 * MS)
#define SETTLES	   (20 * MS) /* after a program came slices are set */
/* so far ahead of its share a tenant's bound is not kept, until it is half as far ahead */
#define AHEAD_MOST (100 * MS)

enum phase { ABSENT, COMPUTING, LAUNCHING, WAITING, PAUSING };

struct process {
	struct model_program p;
	struct model_stats stats;
	enum phase phase;
	uint64_t until; /* of COMPUTING and PAUSING */
	uint64_t born;
	uint32_t left; /* launches of this round */
	uint32_t round;
	uint64_t put, done;	/* launches */
	uint64_t taken;		/* of those, by the engine's host until it was on the engine last */
	uint64_t kernel;	/* what is left of the one that runs */
	uint64_t stalled_until; /* what its queue waits for comes */
	uint64_t launched_from; /* when the round began */
	uint64_t arrived;	/* work came into empty queues; 0 = it was on the engine since */
	bool bound;		/* and its tenant's bound is for that work */
	uint64_t worked;	/* it was on the engine last */
	bool ahead;		/* its tenant is too far ahead of its share for a bound */
	uint64_t ahead_at;	/* when it was so last */
	/*
	 * of requests: when those that wait came, and of each that runs what is left and its last
	 * token
	 */
	uint64_t came[MODEL_WAITS];
	uint32_t waiting, served;
	uint32_t tokens_left[MODEL_SLOTS];
	uint64_t last_token[MODEL_SLOTS];
	uint64_t seed;
	bool reads;   /* it reads a prompt */
	uint64_t off; /* it has had work for so long and is not on the engine */
	/* the host's side */
	bool stopped, going;
	uint64_t slice, next_look, looked, seen_put;
	int told;
};

struct model {
	struct rtxg_slice *core; /* NULL: the stock driver */
	void *memory;
	size_t size;
	void *before; /* the core as it was, to be put back; NULL: nothing is judged */
	uint64_t judged, hasty;
	struct process c[MODEL_PROGRAMS];
	uint32_t count;
	bool tenant[MODEL_TENANTS];
	uint64_t now, seed, timer, host_free;
	uint64_t busy_since; /* the host's calls follow each other since then, up to host_free */
	uint64_t came;	     /* the last program that came */
	uint64_t lives;	     /* so many have come or gone */
	bool unread;	     /* at the timer's time the log need not be read */
	uint64_t late_ns; /* the host's timer comes up to so much late, now and then for a while */
	bool lookout;	  /* the queues are looked into during calls too */
	struct rtxg_slice_event seen[SEEN]; /* in a call, and not told yet */
	uint32_t seen_count;
	uint64_t slow_ns; /* calls take up to so much longer */
	bool flushed;	  /* the driver has been asked for the log, and it is to be read */
	int on, last;
	uint64_t saving, gap, stay;
	struct {
		struct rtxg_slice_action action;
		uint64_t at;
	} pending[PENDING];
	uint32_t pending_count;
	struct {
		uint32_t type, context;
		uint64_t at;
	} log[LOG_ROOM];
	uint32_t log_count;
	struct model_host host;
	uint64_t idle, kept, unused, last_call_end;
	uint32_t last_call_type;
	char wrong[128];
};

/* slice_model.c */
uint64_t model_between(struct model *m, uint64_t low, uint64_t high);
void model_feed(struct model *m, struct rtxg_slice_event event);
/* So many calls of the driver are made that are no actions. */
void model_calls(struct model *m, uint32_t count);
bool model_promised(const struct model *m, const struct process *c);
void model_go_off(struct model *m);

/* slice_programs.c */
uint64_t model_kernel_of(const struct process *c);
void model_program_step(struct model *m, uint32_t i);

/* slice_gpus.c: is it not waiting for another GPU? Its kernel is on the engine in this step. */
bool model_gets_on(const struct model *m, const struct process *c);

#endif
