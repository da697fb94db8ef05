// SPDX-License-Identifier: MIT
/*
 * events.c - the table of the events of unresolved batches, and the calls of OpenCL that can run
 * the program's code: they are collected under the monitor's lock and made after it. May not take
 * that lock, nor decide anything.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events.h"

#define MAP_BUCKETS 1024

struct layer_map_entry {
	struct layer_map_entry *next;
	cl_event event;
	struct layer_batch *batch;
};

static struct layer_map_entry *map[MAP_BUCKETS];
static cl_event kept[LAYER_KEPT]; /* a ring */
static _Atomic uint64_t kept_n;	  /* put in, ever */

void layer_no_memory(void)
{
	fprintf(stderr, "rtxg: out of memory in the OpenCL layer\n");
	abort();
}

void layer_events_add(struct layer_events *e, cl_event event)
{
	if (!e->n) {
		e->at = e->few;
		e->cap = sizeof(e->few) / sizeof(e->few[0]);
	}
	if (e->n == e->cap) {
		cl_event *more = malloc(2 * e->cap * sizeof(*more));

		if (!more)
			layer_no_memory();
		memcpy(more, e->at, e->n * sizeof(*more));
		if (e->at != e->few)
			free(e->at);
		e->at = more;
		e->cap *= 2;
	}
	e->at[e->n++] = event;
}

void layer_events_keep(struct layer_todo *todo, cl_event event)
{
	cl_event *slot = &kept[kept_n++ % LAYER_KEPT];

	if (*slot)
		layer_events_add(&todo->release, *slot);
	*slot = event;
}

void layer_events_drop_kept(struct layer_todo *todo)
{
	for (unsigned int i = 0; i < LAYER_KEPT; i++) {
		if (kept[i])
			layer_events_add(&todo->release, kept[i]);
		kept[i] = NULL;
	}
	kept_n = 0;
}

bool layer_events_any_kept(void)
{
	return kept_n;
}

unsigned int layer_events_kept(cl_event event)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < LAYER_KEPT; i++)
		n += kept[i] == event;
	return n;
}

static void events_end(struct layer_events *e)
{
	if (e->n && e->at != e->few)
		free(e->at);
}

void layer_todo_do(struct layer_todo *todo, layer_completed completed, layer_completed ended)
{
	for (unsigned int i = 0; i < todo->open.n; i++) {
		layer_next.clSetUserEventStatus(todo->open.at[i], CL_COMPLETE);
		layer_next.clReleaseEvent(todo->open.at[i]);
	}
	for (unsigned int i = 0; i < todo->refuse.n; i++) {
		layer_next.clSetUserEventStatus(todo->refuse.at[i], CL_OUT_OF_RESOURCES);
		layer_next.clReleaseEvent(todo->refuse.at[i]);
	}
	for (unsigned int i = 0; i < todo->flush_n; i++) {
		layer_next.clFlush(todo->flush[i]);
		layer_next.clReleaseCommandQueue(todo->flush[i]);
	}
	for (unsigned int i = 0; i < todo->arm_n; i++) {
		/*
		 * Where it cannot be registered the helper's polling finds the completion, and the
		 * next one is tried again.
		 */
		if (layer_next.clSetEventCallback(todo->arm[i].event, CL_COMPLETE, completed,
						  todo->arm[i].lane))
			atomic_store(&todo->arm[i].lane->armed, false);
		layer_next.clReleaseEvent(todo->arm[i].event);
	}
	for (unsigned int i = 0; i < todo->watch.n; i++) {
		layer_next.clSetEventCallback(todo->watch.at[i], CL_COMPLETE, ended, NULL);
		layer_next.clReleaseEvent(todo->watch.at[i]);
	}
	for (unsigned int i = 0; i < todo->release.n; i++)
		layer_next.clReleaseEvent(todo->release.at[i]);
	events_end(&todo->open);
	events_end(&todo->refuse);
	events_end(&todo->release);
	events_end(&todo->watch);
}

static unsigned int bucket_of(cl_event event)
{
	return (unsigned int)(((uintptr_t)event >> 4) * 0x9e3779b97f4a7c15ull >> 54) % MAP_BUCKETS;
}

struct layer_batch *layer_map_find(cl_event event)
{
	for (struct layer_map_entry *m = map[bucket_of(event)]; m; m = m->next)
		if (m->event == event)
			return m->batch;
	return NULL;
}

bool layer_map_add(cl_event event, struct layer_batch *batch)
{
	struct layer_map_entry *m = malloc(sizeof(*m)), **slot = &map[bucket_of(event)];

	if (!m)
		return false;
	*m = (struct layer_map_entry){ .next = *slot, .event = event, .batch = batch };
	*slot = m;
	return true;
}

void layer_map_remove(cl_event event)
{
	for (struct layer_map_entry **m = &map[bucket_of(event)]; *m; m = &(*m)->next) {
		if ((*m)->event == event) {
			struct layer_map_entry *dead = *m;

			*m = dead->next;
			free(dead);
			return;
		}
	}
}

void layer_map_forget(void)
{
	memset(map, 0, sizeof(map));
	memset(kept, 0, sizeof(kept));
	kept_n = 0;
}
