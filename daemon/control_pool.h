/* SPDX-License-Identifier: MIT */
/* control_pool.h - handlers of requests: see control.c for their table, control_pool.c for them. */
#ifndef RTXGD_CONTROL_POOL_H
#define RTXGD_CONTROL_POOL_H

#include "daemon.h"

void control_pool_list(struct connection *c, const struct request *r);
void control_pool_create(struct connection *c, const struct request *r);
void control_pool_remove(struct connection *c, const struct request *r);
void control_advice(struct connection *c, const struct request *r);
void control_pool_acquire(struct connection *c, const struct request *r);
void control_pool_release(struct connection *c, const struct request *r);

#endif
