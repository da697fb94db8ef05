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

/* A list that needs no memory while it is short. */
struct layer_events {
	cl_event *at;
	unsigned int n, cap;
	cl_event few[32];
};

/* Calls to be made once the monitor's lock is free, and notes. */
struct layer_todo {
	struct layer_events open;    /* gates to open, then release */
	struct layer_events refuse;  /* gates to set to an error, then release */
	struct layer_events release; /* events to release */
	struct {
		cl_event event;
		struct layer_lane *lane;
	} arm[LAYER_ENGINES * 4];
	unsigned int arm_n;
	cl_command_queue flush[8]; /* retained */
	unsigned int flush_n;
	bool again; /* something has become possible: all lanes are to be looked at */
	bool more;  /* more is known of a queue than when the look began */
};

typedef void(CL_CALLBACK *layer_completed)(cl_event event, cl_int status, void *lane);

void layer_events_add(struct layer_events *e, cl_event event);
static inline void layer_todo_init(struct layer_todo *todo)
{
	todo->open.at = todo->refuse.at = todo->release.at = NULL;
	todo->open.n = todo->refuse.n = todo->release.n = 0;
	todo->arm_n = todo->flush_n = 0;
	todo->again = todo->more = false;
}

static inline bool layer_todo_empty(const struct layer_todo *todo)
{
	return !(todo->open.n | todo->refuse.n | todo->release.n | todo->arm_n | todo->flush_n);
}

/* Makes the calls; completed hears of the events in arm. */
void layer_todo_do(struct layer_todo *todo, layer_completed completed) LAYER_RARE;

/* The table, under the monitor's lock: which unresolved batch an event belongs to. */
struct layer_batch *layer_map_find(cl_event event);
bool layer_map_add(cl_event event, struct layer_batch *batch);
void layer_map_remove(cl_event event);
/* In a forked child: the entries are the parent's. */
void layer_map_forget(void);

/* Where forgetting something would leave the program waiting for ever, ending it is kinder. */
void layer_no_memory(void) LAYER_RARE;

#endif
