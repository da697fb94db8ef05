/* SPDX-License-Identifier: MIT */
/* control_task.h - handlers of requests: see control.c for their table, control_task.c for them. */
#ifndef RTXGD_CONTROL_TASK_H
#define RTXGD_CONTROL_TASK_H

#include "daemon.h"

void control_task_list(struct connection *c, const struct request *r);
void control_task_set(struct connection *c, const struct request *r);
void control_place(struct connection *c, const struct request *r);
void control_open(struct connection *c, const struct request *r);
void control_set(struct connection *c, const struct request *r);
void control_fence(struct connection *c, const struct request *r);
void control_fence_event(struct connection *c, const struct request *r);

#endif
