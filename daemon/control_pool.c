// SPDX-License-Identifier: MIT
/*
 * control_pool.c - requests about pools, and of tasks that want a GPU of one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control_pool.h"
#include "host.h"
#include "inherit.h"
#include "keep.h"
#include "objects.h"
#include "reply.h"

void control_pool_list(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	json_t *list = json_array();

	for (uint32_t i = 0; i < POOLS_MAX; i++) {
		struct pool *pool = &d->pools[i];
		struct gpu *advice;
		json_t *gpus;

		if (!pool->used)
			continue;
		gpus = json_array();
		for (uint32_t g = 0; g < GPUS_MAX; g++)
			if (pool->mask >> g & 1)
				json_array_append_new(gpus, json_string(d->gpus[g].name));
		advice = d->host->advice(d, pool);
		json_array_append_new(list, json_pack("{s:s, s:o, s:i, s:s}", "pool", pool->name,
						      "gpus", gpus, "members", (int)pool->members,
						      "advice", advice ? advice->name : ""));
	}
	reply_ok(c, r, json_pack("{s:o}", "pools", list));
}

void control_pool_create(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	uint64_t mask = 0;
	char why[512];
	int error = 0;

	for (uint32_t i = 0; i < r->gpus_count && !error; i++) {
		struct gpu *gpu = objects_gpu_get(d, r->gpus[i], ORIGIN_RUNTIME, NULL, why,
						  sizeof(why), &error);

		if (gpu)
			mask |= 1ull << gpu->id;
	}
	if (!error)
		error = objects_pool_create(d, r->pool, mask, why, sizeof(why));
	if (error) {
		reply_error(c, r->op_name, error, why, NULL);
		return;
	}
	objects_pool_find(d, r->pool)->made = true;
	keep_save(d);
	reply_ok(c, r, keep_warn(json_object()));
}

void control_pool_remove(struct connection *c, const struct request *r)
{
	struct pool *pool = objects_pool_find(c->daemon, r->pool);
	char why[256];

	if (!pool) {
		reply_no_such(c, r, "pool", r->pool, "\"rtxg pool ls\" lists them");
		return;
	}
	snprintf(why, sizeof(why), "pool %s has %u tasks that hold or want a GPU of it", pool->name,
		 pool->members);
	if (objects_pool_remove(c->daemon, pool)) {
		reply_error(c, r->op_name, -EBUSY, why, NULL);
		return;
	}
	keep_save(c->daemon);
	reply_ok(c, r, keep_warn(json_object()));
}

void control_advice(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct pool *pool = NULL;
	struct gpu *best;

	if (given(r, M_POOL)) {
		pool = objects_pool_find(d, r->pool);
		if (!pool) {
			reply_no_such(
				c, r, "pool", r->pool,
				"[Pool NAME] in the configuration or \"pool-create\" makes one");
			return;
		}
	}
	best = d->host->advice(d, pool);
	if (!best)
		reply_error(c, r->op_name, -ENODEV, "there is no GPU", NULL);
	else
		reply_ok(c, r, json_pack("{s:s}", "gpu", best->name));
}

void control_pool_acquire(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct rtxg_refusal refusal;
	struct pool *pool;
	char why[512];
	int error;

	pool = objects_pool_find(d, r->pool);
	if (!pool) {
		reply_no_such(c, r, "pool", r->pool,
			      "[Pool NAME] in the configuration or \"pool-create\" makes one");
		return;
	}
	if (c->task->pool) {
		snprintf(why, sizeof(why), "the task has or wants a GPU of pool %s already",
			 c->task->pool->name);
		reply_error(c, r->op_name, -EALREADY, why, NULL);
		return;
	}
	c->task->pool = pool;
	inherit_thread(d, c->task, given(r, M_THREAD) ? (pid_t)r->thread : 0);
	pool->members++;
	/* The answer goes out with the grant, now or later. */
	error = host_pool_acquire(d, c->task, pool);
	if (error) {
		refusal = d->permits.refusal;
		c->task->pool = NULL;
		pool->members--;
		objects_explain(why, sizeof(why), "the pool cannot be asked", &refusal, error);
		reply_error(c, r->op_name, error, why, &refusal);
	}
}

void control_pool_release(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct pool *pool;
	bool held;

	pool = c->task->pool;
	if (!pool || strcmp(pool->name, r->pool)) {
		reply_error(c, r->op_name, -EPERM,
			    "the task neither has nor wants a GPU of that pool", NULL);
		return;
	}
	held = c->task->permit.pool_held;
	c->task->pool = NULL;
	pool->members--;
	host_pool_release(d, c->task);
	/* Replies go out in the order of the requests. */
	if (!held)
		reply_error(c, "pool-acquire", -ECANCELED, "the request was withdrawn", NULL);
	reply_ok(c, r, NULL);
}
