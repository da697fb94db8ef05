/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * pool.c - several like GPUs behind one lock: the k-FMLP (Elliott and Anderson, ECRTS 2012,
 * appendix A).
 *
 * R1  A request goes to the queue with the least worst-case wait: the sum of the critical sections
 *     queued there (the task's runtime, unless the event gives one; 0 counts as one unit, which
 *     makes the rule "shortest queue"), lowest GPU among equals. The head of a queue holds that
 *     GPU.
 * R2  A holder inherits the highest priority among those it keeps waiting.
 * R3  On release the next in the queue holds; if there is none, the highest-priority request
 *     waiting in any other queue is moved here.
 */
#include "actions.h"
#include "engine.h"
#include "pool.h"

static uint64_t length_of(const struct core_task *task)
{
	return task->pool_length_ns ? task->pool_length_ns : 1;
}

static struct core_pool_queue *queue_of(struct rtxg_core *core, const struct core_task *task)
{
	return &core->pools[task->pool].queues[task->pool_gpu];
}

static void emit_grant(struct rtxg_core *core, const struct core_task *task)
{
	struct rtxg_action *action = core_emit(core, RTXG_ACT_POOL_GRANT);

	action->pool = task->pool;
	action->task = task->id;
	action->gpu = task->pool_gpu;
}

/*
 * R2. The inherited priority counts inside the vGPU too, so that the holder is not itself kept
 * waiting there.
 */
static void inherit(struct rtxg_core *core, struct core_task *task, uint32_t priority)
{
	struct rtxg_action *action;

	if (priority <= task->pool_priority)
		priority = 0;
	if (task->inherited == priority)
		return;
	task->inherited = priority;
	action = core_emit(core, RTXG_ACT_POOL_INHERIT);
	action->pool = task->pool;
	action->task = task->id;
	action->priority = priority;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		core_lane_requeue(core, task, i);
}

static void update_head(struct rtxg_core *core, struct core_pool_queue *queue)
{
	struct heap_node *first = heap_first(&queue->blocked);

	if (queue->head)
		inherit(core, queue->head,
			first ? heap_owner(first, struct core_task, pool_blocked)->pool_priority
			      : 0);
}

static void append(struct rtxg_core *core, struct core_task *task)
{
	struct core_pool_queue *queue = queue_of(core, task);

	task->pool_next = NULL;
	task->pool_prev = queue->tail;
	if (queue->tail)
		queue->tail->pool_next = task;
	else
		queue->head = task;
	queue->tail = task;
	queue->length++;
	queue->wait_ns += length_of(task);
	if (queue->head != task)
		heap_insert(&queue->blocked, &task->pool_blocked,
			    RTXG_PRIORITY_MAX - task->pool_priority, task->pool_seq);
}

static void take_out(struct rtxg_core *core, struct core_task *task)
{
	struct core_pool_queue *queue = queue_of(core, task);

	if (task->pool_prev)
		task->pool_prev->pool_next = task->pool_next;
	else
		queue->head = task->pool_next;
	if (task->pool_next)
		task->pool_next->pool_prev = task->pool_prev;
	else
		queue->tail = task->pool_prev;
	task->pool_next = task->pool_prev = NULL;
	heap_remove(&task->pool_blocked);
	queue->length--;
	queue->wait_ns -= length_of(task);
}

/* R3: who gets the GPU that has become free. */
static void hand_on(struct rtxg_core *core, struct core_pool *pool, uint32_t gpu)
{
	struct core_pool_queue *queue = &pool->queues[gpu];
	struct core_task *next = queue->head;

	if (!next) {
		struct core_pool_queue *from = NULL;

		for (uint32_t i = 0; i < core->limits.gpus; i++) {
			struct heap_node *node = heap_first(&pool->queues[i].blocked);
			struct heap_node *best = from ? heap_first(&from->blocked) : NULL;

			if (node && (!best || node->key < best->key ||
				     (node->key == best->key && node->tie < best->tie)))
				from = &pool->queues[i];
		}
		if (!from)
			return;
		next = heap_owner(heap_first(&from->blocked), struct core_task, pool_blocked);
		take_out(core, next);
		update_head(core, from);
		next->pool_gpu = gpu;
		append(core, next);
	} else {
		heap_remove(&next->pool_blocked);
	}
	emit_grant(core, next);
	update_head(core, queue);
}

void core_pool_leave(struct rtxg_core *core, struct core_task *task)
{
	struct core_pool *pool;
	bool held;

	if (task->pool == RTXG_NONE)
		return;
	pool = &core->pools[task->pool];
	held = queue_of(core, task)->head == task;
	take_out(core, task);
	pool->members--;
	inherit(core, task, 0);
	if (held)
		hand_on(core, pool, task->pool_gpu);
	else
		update_head(core, &pool->queues[task->pool_gpu]);
	task->pool = RTXG_NONE;
}

static uint32_t fewest_tasks(const struct rtxg_core *core)
{
	uint32_t best = RTXG_NONE, fewest = 0;

	for (uint32_t i = 0; i < core->limits.gpus; i++) {
		uint32_t tasks = 0;

		if (!core->gpus[i].used)
			continue;
		for (const struct core_vgpu *v = core->gpus[i].vgpus; v; v = v->next)
			tasks += v->tasks;
		if (best == RTXG_NONE || tasks < fewest) {
			best = i;
			fewest = tasks;
		}
	}
	return best;
}

uint32_t rtxg_core_device_advice(const struct rtxg_core *core, uint32_t id)
{
	const struct core_pool *pool;
	uint32_t best = RTXG_NONE;

	if (id == RTXG_NONE)
		return fewest_tasks(core);
	if (id >= core->limits.pools || !core->pools[id].used)
		return RTXG_NONE;
	pool = &core->pools[id];
	for (uint32_t i = 0; i < core->limits.gpus; i++)
		if ((pool->gpu_mask >> i & 1) &&
		    (best == RTXG_NONE || pool->queues[i].wait_ns < pool->queues[best].wait_ns))
			best = i;
	return best;
}

uint32_t rtxg_core_pool_holder(const struct rtxg_core *core, uint32_t id)
{
	const struct core_task *task, *head;

	if (id >= core->limits.tasks || !core->tasks[id].open)
		return RTXG_NONE;
	task = &core->tasks[id];
	if (task->pool == RTXG_NONE)
		return RTXG_NONE;
	head = core->pools[task->pool].queues[task->pool_gpu].head;
	return head == task ? RTXG_NONE : head->id;
}

static int request(struct rtxg_core *core, const struct rtxg_event *event, struct core_pool *pool)
{
	struct core_task *task;

	if (event->task >= core->limits.tasks || !core->tasks[event->task].open)
		return core_refuse(core, -ENOENT, "no such task", event->task, 0);
	task = &core->tasks[event->task];
	if (task->pool != RTXG_NONE)
		return core_refuse(core, -EALREADY,
				   "the task holds or waits for a GPU of a pool already",
				   task->pool, 0);
	if (event->priority > RTXG_PRIORITY_MAX)
		return core_refuse(core, -EINVAL, "priority is over the highest", event->priority,
				   RTXG_PRIORITY_MAX);
	if (event->used_ns > RTXG_PERIOD_MAX_NS * 1000)
		return core_refuse(core, -EINVAL,
				   "critical section (ns) is longer than the longest",
				   event->used_ns, RTXG_PERIOD_MAX_NS * 1000);
	task->pool_gpu = rtxg_core_device_advice(core, event->pool);
	task->pool = event->pool;
	task->pool_priority = event->priority ? event->priority : task->params.priority;
	task->pool_length_ns = min_u64(event->used_ns ? event->used_ns : task->params.runtime_ns,
				       RTXG_PERIOD_MAX_NS * 1000);
	task->pool_seq = core->sequence++;
	task->inherited = 0;
	append(core, task);
	pool->members++;
	if (queue_of(core, task)->head == task)
		emit_grant(core, task);
	else
		update_head(core, queue_of(core, task));
	return 0;
}

int core_pool_event(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct core_pool *pool;

	if (event->pool >= core->limits.pools)
		return core_refuse(core, -EINVAL, "pool number is over the limit", event->pool,
				   core->limits.pools);
	pool = &core->pools[event->pool];
	if (event->type == RTXG_EV_POOL_ADD) {
		if (pool->used)
			return core_refuse(core, -EEXIST, "that pool exists already", event->pool,
					   0);
		if (!event->gpu_mask)
			return core_refuse(core, -EINVAL, "a pool needs at least one GPU", 0, 1);
		for (uint32_t i = 0; i < 64; i++)
			if ((event->gpu_mask >> i & 1) &&
			    (i >= core->limits.gpus || !core->gpus[i].used))
				return core_refuse(core, -ENOENT, "no such GPU", i, 0);
		memset(pool, 0, sizeof(*pool));
		pool->used = true;
		pool->gpu_mask = event->gpu_mask;
		return 0;
	}
	if (!pool->used)
		return core_refuse(core, -ENOENT, "no such pool", event->pool, 0);
	switch (event->type) {
	case RTXG_EV_POOL_REMOVE:
		if (pool->members)
			return core_refuse(core, -EBUSY, "the pool is in use", pool->members, 0);
		pool->used = false;
		return 0;
	case RTXG_EV_POOL_REQUEST:
		return request(core, event, pool);
	default:
		if (event->task >= core->limits.tasks || !core->tasks[event->task].open)
			return core_refuse(core, -ENOENT, "no such task", event->task, 0);
		if (core->tasks[event->task].pool != event->pool)
			return core_refuse(
				core, -EPERM,
				"the task neither holds nor waits for a GPU of that pool",
				event->pool, 0);
		core_pool_leave(core, &core->tasks[event->task]);
		return 0;
	}
}
