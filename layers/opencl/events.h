/* SPDX-License-Identifier: MIT */
/*
 * events.h - the table of events, and the calls of OpenCL that are left for after the monitor's
 * lock.
 */
#ifndef RTXG_OPENCL_EVENTS_H
#define RTXG_OPENCL_EVENTS_H

#include <stdbool.h>

#include "device.h"
#include "queue.h"

#define LAYER_KEPT 64

/* A list that needs no memory while it is short. */
struct layer_events {
	cl_event *at; /* if there are any */
	unsigned int n, cap;
	cl_event few[32];
};

/* Calls to be made once the monitor's lock is free, and notes. */
struct layer_todo {
	struct layer_events open;    /* gates to open, then release */
	struct layer_events refuse;  /* gates to set to an error, then release */
	struct layer_events release; /* events to release */
	struct layer_events watch;   /* events whose ends are to be told, then to release */
	struct {
		cl_event event;
		struct layer_lane *lane;
	} arm[LAYER_ENGINES * 4];
	unsigned int arm_n;
	cl_command_queue flush[8]; /* retained */
	unsigned int flush_n;
	bool again;  /* something has become possible: all lanes are to be looked at */
	bool more;   /* more is known of a queue than when the look began */
	bool failed; /* a command has failed, and others may have failed with it */
};

typedef void(CL_CALLBACK *layer_completed)(cl_event event, cl_int status, void *lane);

void layer_events_add(struct layer_events *e, cl_event event);
static inline void layer_todo_init(struct layer_todo *todo)
{
	todo->open.n = todo->refuse.n = todo->release.n = todo->watch.n = 0;
	todo->arm_n = todo->flush_n = 0;
	todo->again = todo->more = todo->failed = false;
}

static inline bool layer_todo_empty(const struct layer_todo *todo)
{
	return !(todo->open.n | todo->refuse.n | todo->release.n | todo->watch.n | todo->arm_n |
		 todo->flush_n);
}

/*
 * To be released some time later: the event of a command that has failed. PoCL 3.1 looks at it once
 * more for each event that the command waited for, a while after that one's callbacks, and crashes
 * where it is gone. So the newest LAYER_KEPT of them stay.
 */
void layer_events_keep(struct layer_todo *todo, cl_event event) LAYER_RARE;
/* They go: the program drops a context, which they would keep. */
void layer_events_drop_kept(struct layer_todo *todo) LAYER_RARE;
bool layer_events_any_kept(void);
unsigned int layer_events_kept(cl_event event);

/* Makes the calls; completed hears of the events in arm, ended of those in watch. */
void layer_todo_do(struct layer_todo *todo, layer_completed completed,
		   layer_completed ended) LAYER_RARE;

/* The table, under the monitor's lock: which unresolved batch an event belongs to. */
struct layer_batch *layer_map_find(cl_event event);
bool layer_map_add(cl_event event, struct layer_batch *batch);
void layer_map_remove(cl_event event);
/* In a forked child: the entries are the parent's. */
void layer_map_forget(void);

/* Where forgetting something would leave the program waiting for ever, ending it is kinder. */
void layer_no_memory(void) LAYER_RARE;

#endif
