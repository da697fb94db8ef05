/* SPDX-License-Identifier: MIT */
/* control_task.h - handlers of requests: see control.c for their table, control_task.c for them. */
#ifndef RTXGD_CONTROL_TASK_H
#define RTXGD_CONTROL_TASK_H

#include "backend.h"
#include "reply.h"

/* A request about more tasks than fit into this goes on after others' requests. */
#define CONTROL_PIECE_NS (2 * NS_PER_MS)

/* An answer with a list of tasks, which is made in pieces. */
struct tasks_answer {
	struct reply_rows rows;
	struct backend_rows tasks;
	bool made; /* all rows are there: it is to be sent, whatever a piece has taken by then */
};

/* A new one, which the connection keeps until it is sent. NULL: the client knows why not. */
struct tasks_answer *control_tasks_begin(struct connection *c, const struct request *r);
/*
 * The next piece of the list; true: there is none left, and the answer may be sent. Else the
 * request goes on later.
 */
bool control_tasks_go_on(struct connection *c, struct tasks_answer *answer,
			 const struct backend_filter *filter);

void control_task_list(struct connection *c, const struct request *r);
void control_task_set(struct connection *c, const struct request *r);
void control_place(struct connection *c, const struct request *r);
void control_open(struct connection *c, const struct request *r);
void control_set(struct connection *c, const struct request *r);
void control_fence(struct connection *c, const struct request *r);
void control_fence_event(struct connection *c, const struct request *r);

#endif
