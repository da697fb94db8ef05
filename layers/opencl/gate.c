// SPDX-License-Identifier: MIT
/*
 * gate.c - what happens around an enqueue call.
 *
 * A command always goes straight into the program's own queue, in the program's own call. What the
 * layer can add is one more event in its wait list: a "gate", a user event that is set when the
 * command may run. So order, events, callbacks and errors stay those of the OpenCL implementation,
 * and no enqueue call waits for another process.
 *
 * While nothing is unresolved, an enqueue looks at no dependency at all: it joins the current
 * admitted batch, at the price of a lock that no thread contends.
 */
#include <stdlib.h>
#include <string.h>

#include "admission.h"
#include "completion.h"
#include "gate.h"
#include "helper.h"
#include "monitor.h"
#include "permit.h"
#include "rtxg_cpu.h"
#include "turn.h"

/*
 * A list without a count, or a count without a list: an error for the standard, and for some calls
 * of some implementations.
 */
static bool odd_list(cl_uint n, const cl_event *list)
{
	return !n != !list;
}

LAYER_RARE static void append_gate(struct layer_ticket *t, cl_event gate)
{
	cl_event *list = t->stack;

	if (odd_list(t->n, t->list)) {
		/* The list stays as it is, and with it the answer: the gate goes into the queue. */
		layer_next.clRetainEvent(gate);
		t->gate = gate;
		t->fenced = true;
		return;
	}
	if (t->n + 1 > sizeof(t->stack) / sizeof(t->stack[0])) {
		list = t->heap = malloc((t->n + 1) * sizeof(*list));
		if (!list)
			layer_no_memory();
	}
	if (t->n)
		memcpy(list, t->list, t->n * sizeof(*list));
	list[t->n++] = gate;
	/* until the call has returned: the gate may be opened and dropped before */
	layer_next.clRetainEvent(gate);
	t->gate = gate;
	t->list = list;
}

/* The unresolved batches that a command depends on. */
struct layer_depends {
	struct layer_batch **at;
	unsigned int n, cap;
	struct layer_batch *few[32];
};

LAYER_RARE static void depends_add(struct layer_depends *d, struct layer_batch *b)
{
	/* Found twice does no harm: it is then counted twice. Only short lists are worth a look. */
	for (unsigned int i = 0; i < d->n && i < 64; i++)
		if (d->at[i] == b)
			return;
	if (d->n == d->cap) {
		struct layer_batch **more = malloc(2 * d->cap * sizeof(*more));

		if (!more)
			layer_no_memory();
		memcpy(more, d->at, d->n * sizeof(*more));
		if (d->at != d->few)
			free(d->at);
		d->at = more;
		d->cap *= 2;
	}
	d->at[d->n++] = b;
}

/*
 * A marker with a list in an out-of-order queue waits for the list, and in PoCL 3.1 for all before
 * it as well. Where something in the queue is held back its end shows which.
 */
LAYER_RARE static bool waits_for_more(const struct layer_queue *q, enum layer_pass pass, cl_uint n)
{
	if (pass != PASS_MARKER || !n || q->in_order)
		return false;
	for (const struct layer_batch *b = layer_batch_unresolved(); b; b = b->unext)
		if (b->queue == q)
			return true;
	return false;
}

LAYER_RARE static void dependencies(struct layer_depends *d, struct layer_queue *q,
				    enum layer_pass pass, cl_uint n, const cl_event *list)
{
	if (!list)
		n = 0;
	if (q->tail)
		depends_add(d, q->tail);
	for (cl_uint i = 0; i < n; i++) {
		struct layer_batch *b = layer_map_find(list[i]);

		if (b)
			depends_add(d, b);
	}
	if (pass == PASS_COMMAND || n || q->in_order)
		return;
	for (struct layer_batch *b = layer_batch_unresolved(); b; b = b->unext)
		if (b->queue == q)
			depends_add(d, b);
}

/*
 * The batch that takes one more command: without dependencies the one that runs, else the
 * unresolved one of the same in-order queue and engine. NULL: there is none.
 */
static struct layer_batch *join(struct layer_ticket *t, struct layer_queue *q,
				struct layer_lane *lane, const struct layer_depends *deps)
{
	struct layer_batch *b = deps->n ? q->tail : lane->current;

	if (!b || !lane_takes(b->n + b->entering, b->est_ns, t->est_ns, layer_admission_ahead()))
		return NULL;
	if (!deps->n) {
		if (!lane_join(&lane->state, t->est_ns, layer_admission_ahead(),
			       layer_permit_revoked(lane)))
			return NULL;
		b->in_order &= b->queue == q;
	} else {
		if (!q->in_order || deps->n != 1 || deps->at[0] != b || b->lane != lane || b->frail)
			return NULL;
		if (!b->first_in && b->gate)
			append_gate(t, b->gate);
	}
	/* Two calls at once may be noted in another order than that of the queue. */
	b->in_order &= !b->entering;
	b->est_ns += t->est_ns;
	b->entering++;
	return b;
}

/* Makes an unresolved batch known to those that come after it, and holds its command back. */
LAYER_RARE static void stand_in_queue(struct layer_ticket *t, struct layer_batch *b,
				      enum layer_pass pass, struct layer_todo *todo)
{
	struct layer_queue *q = b->queue;
	cl_int err;

	if (q->in_order || pass == PASS_BARRIER || (b->lane && odd_list(t->n, t->list)))
		q->tail = b;
	if (!b->lane)
		return;
	b->gate = layer_next.clCreateUserEvent(q->context, &err);
	/* Without a gate it runs as if nothing managed it, and is accounted none the less. */
	if (b->gate)
		append_gate(t, b->gate);
	layer_admission_run(b->lane, todo);
}

/* A new batch that depends on nothing: it runs at once, or waits for the permit only. */
static struct layer_batch *open_batch(struct layer_ticket *t, struct layer_queue *q,
				      struct layer_lane *lane, enum layer_pass pass,
				      struct layer_todo *todo)
{
	struct layer_batch *b = layer_batch_new(lane, q);

	if (!b)
		return NULL;
	b->est_ns = t->est_ns;
	b->entering = 1;
	if (!layer_rarely(!layer_admission_at_once(lane, b, todo)))
		return b;
	layer_batch_block(b);
	layer_batch_ready(b);
	stand_in_queue(t, b, pass, todo);
	return b;
}

/* A new batch behind others; lane is NULL where the command occupies no engine. */
LAYER_RARE static struct layer_batch *block_behind(struct layer_ticket *t, struct layer_queue *q,
						   struct layer_lane *lane, enum layer_pass pass,
						   const struct layer_depends *deps,
						   struct layer_todo *todo)
{
	struct layer_batch *b = layer_batch_new(lane, q);

	if (!b)
		return NULL;
	b->est_ns = lane ? t->est_ns : 0;
	b->entering = 1;
	b->behind = q->tail;
	layer_batch_block(b);
	for (unsigned int i = 0; i < deps->n; i++)
		layer_batch_depend(b, deps->at[i]);
	stand_in_queue(t, b, pass, todo);
	return b;
}

/* Will what comes behind a command in its queue tell of its end, and does the layer see it come? */
static bool told_from_behind(const struct layer_ticket *t, struct layer_queue *q)
{
	return !t->program_event && !t->blocking && q->in_order && !q->times && q->marks &&
	       !q->busy && !layer_device_in_part() && layer_completion_tells(q);
}

/*
 * Gives a command its number. Returns that of the marker that has to tell of those before it first;
 * 0: none has to.
 */
static uint64_t number(struct layer_ticket *t, struct layer_queue *q, struct layer_lane *lane,
		       const struct layer_batch *b)
{
	bool held = b->state != LAYER_ADMITTED || t->gate;
	uint64_t marker = 0;

	t->bare &= lane && !held;
	/* Called out of a call on the same queue, before or behind that call's command. */
	if (layer_rarely(q->busy))
		return 0;
	/* Before the command's own: it stands in front, and its end is not the command's. */
	if (layer_rarely(held && layer_completion_untold(q)))
		marker = ++q->entered;
	if (lane)
		t->number = ++q->entered;
	if (t->bare)
		q->bare = t->number;
	if (lane)
		lane_entered(&lane->row, t->bare, t->est_ns);
	return marker;
}

/*
 * Holds back what enters the queue from here until the gate is opened. By a thread whose turn it
 * is, without the lock.
 */
LAYER_RARE static bool put_fence(struct layer_ticket *t)
{
	cl_command_queue handle = atomic_load(&t->queue->handle);

	return !(t->queue->marks
			 ? layer_next.clEnqueueBarrierWithWaitList(handle, 1, &t->gate, &t->fence)
			 : layer_next.clEnqueueWaitForEvents(handle, 1, &t->gate));
}

static bool managed(const struct layer_queue *q)
{
	return q->gpu && q->gpu->handle;
}

static void enter(struct layer_ticket *t, struct layer_queue *q, struct layer_lane *lane,
		  enum layer_pass pass)
{
	uint64_t marker = 0;
	struct layer_batch *b = NULL;
	struct layer_depends deps;
	struct layer_todo todo;

	layer_monitor_enter(&todo);
	layer_turn_wait(q);
	deps.at = deps.few;
	deps.n = 0;
	deps.cap = sizeof(deps.few) / sizeof(deps.few[0]);
	if (layer_rarely(atomic_load_explicit(&layer_unresolved_n, memory_order_relaxed))) {
		dependencies(&deps, q, pass, t->n, t->list);
		if (waits_for_more(q, pass, t->n))
			pass = PASS_OUTSIDE;
	}
	if (lane && layer_rarely(lane_refuses(&lane->state))) {
		t->refused = true;
	} else if (lane) {
		if (layer_rarely(!lane->helper_started))
			layer_helper_start(lane);
		t->est_ns =
			lane_estimate(&lane->estimates, t->key, t->units, layer_admission_ahead());
		b = join(t, q, lane, &deps);
		t->bare = told_from_behind(t, q) && (!b || b->queue == q) &&
			  lane_may_be_bare(&lane->state, &lane->row, t->est_ns, b);
		if (!b)
			b = layer_rarely(deps.n) ? block_behind(t, q, lane, pass, &deps, &todo)
						 : open_batch(t, q, lane, pass, &todo);
	} else if (layer_rarely(deps.n || pass == PASS_OUTSIDE)) {
		b = block_behind(t, q, NULL, pass, &deps, &todo);
		if (b && pass == PASS_OUTSIDE) {
			b->outside = true;
			b->deps++;
		}
	}
	t->batch = b;
	if (b) {
		marker = number(t, q, lane, b);
		layer_turn_begin(q);
	} else if (!lane && managed(q)) {
		/*
		 * What is held back must not go in before it, by another thread: it would wait for
		 * that then, and we would not know.
		 */
		t->turn = true;
		layer_turn_begin(q);
	}
	if (layer_rarely(deps.at != deps.few))
		free(deps.at);
	layer_monitor_leave(&todo);
	if (layer_rarely(marker))
		layer_turn_marker(q, atomic_load(&q->handle), marker);
	if (layer_rarely(t->fenced) && !put_fence(t))
		t->refused = true;
}

/* What the layer knows of a queue. A forked child goes on with its parent's: it is another task. */
static struct layer_queue *queue_of(cl_command_queue handle)
{
	struct layer_queue *q = layer_queue_find(handle);

	if (q && layer_rarely(q->generation != layer_generation())) {
		q->gpu = layer_device_gpu(q->device);
		q->generation = layer_generation();
	}
	return q;
}

static void ticket_init(struct layer_ticket *t, struct layer_queue *q, cl_uint n,
			const cl_event *list, cl_event *event)
{
	t->batch = NULL;
	t->queue = q;
	t->n = n;
	t->list = list;
	t->event = event;
	t->program_event = event != NULL;
	t->turn = false;
	t->blocking = false;
	t->bare = false;
	t->number = 0;
	t->own = NULL;
	t->heap = NULL;
	t->gate = NULL;
	t->fenced = false;
	t->fence = NULL;
	t->refused = false;
	t->key = 0;
	t->units = 0;
}

/*
 * Before a command that occupies an engine. key: what the execution time is remembered by; 0 = a
 * copy of so many bytes (units).
 */
void layer_gate_enter(struct layer_ticket *t, cl_command_queue queue, int engine, uint32_t key,
		      uint64_t units, bool blocking, cl_uint n, const cl_event *list,
		      cl_event *event)
{
	struct layer_queue *q = queue_of(queue);

	ticket_init(t, q, n, list, event);
	t->blocking = blocking;
	t->key = key;
	t->units = units;
	if (!q)
		return; /* the next layer says what is wrong with it */
	if (!managed(q)) {
		if (atomic_load(&layer_unresolved_n))
			enter(t, q, NULL, PASS_COMMAND);
	} else {
		enter(t, q, &q->gpu->lanes[engine], PASS_COMMAND);
	}
	if (t->batch && !event && !t->bare)
		t->event = &t->own;
}

/* Before a command that occupies no engine, but that others may come to depend on. */
void layer_gate_enter_pass(struct layer_ticket *t, cl_command_queue queue, enum layer_pass pass,
			   cl_uint n, const cl_event *list, cl_event *event)
{
	struct layer_queue *q = queue_of(queue);

	ticket_init(t, q, n, list, event);
	if (!q || (pass != PASS_OUTSIDE && !atomic_load(&layer_unresolved_n) && !managed(q)))
		return;
	enter(t, q, NULL, pass);
	/* Something may depend on it, so whether it fails has to be seen. */
	if (t->batch && !event)
		t->event = &t->own;
}

/* The call of what has no batch has returned. */
LAYER_RARE static void turn_over(struct layer_queue *q)
{
	struct layer_todo todo;
	bool mark;

	layer_monitor_enter(&todo);
	layer_turn_end(q);
	mark = q->marker_wanted && !q->busy;
	layer_monitor_leave(&todo);
	if (mark)
		layer_turn_mark(q);
}

/*
 * After the call: remembers the command's event; waits for it if the program's call is a blocking
 * one (the call that was made must not have been: see BLOCKING in enqueue.c). Returns what the
 * program's call returns.
 */
cl_int layer_gate_leave(struct layer_ticket *t, cl_int err)
{
	bool noted, mark, blocking = t->blocking;
	struct layer_batch *b = t->batch;
	struct layer_lane *lane;
	struct layer_command *c;
	struct layer_todo todo;
	cl_event event = NULL, outside = NULL;

	if (layer_rarely(t->gate))
		layer_next.clReleaseEvent(t->gate);
	if (layer_rarely(t->heap))
		free(t->heap);
	if (layer_rarely(!b)) {
		if (t->turn)
			turn_over(t->queue);
		if (blocking && !err)
			layer_gate_reap();
		return err;
	}
	if (layer_rarely(!err && t->event && *t->event)) {
		event = *t->event;
		if (t->program_event)
			layer_next.clRetainEvent(event);
		if (blocking)
			layer_next.clRetainEvent(event); /* for waiting, below */
	}
	layer_monitor_enter(&todo);
	lane = b->lane;
	b->entering--;
	if (layer_rarely(t->fence)) {
		if (b->gate)
			b->fence = t->fence;
		else
			layer_events_add(&todo.release, t->fence);
	}
	layer_turn_end(t->queue);
	mark = t->queue->marker_wanted && !t->queue->busy;
	noted = event || (t->bare && !err);
	if (layer_rarely(event && !lane) && b->state == LAYER_ADMITTED) {
		/* Resolved while the call was under way: nothing to remember. */
		if (b->frail)
			layer_events_keep(&todo, event);
		else
			layer_events_add(&todo.release, event);
	} else if (noted && (c = layer_batch_command(b))) {
		*c = (struct layer_command){ .event = event,
					     .number = t->number,
					     .key = t->key,
					     .units = t->units,
					     .est_ns = t->est_ns,
					     .times = t->queue->times };
		if (layer_rarely(b->state != LAYER_ADMITTED) && t->program_event)
			c->mapped = layer_map_add(event, b);
	} else if (event) {
		layer_events_add(&todo.release, event);
	}
	if (!err)
		b->first_in = true;
	if (layer_rarely(b->frail && b->state != LAYER_ADMITTED))
		todo.failed = true; /* perhaps while the call was under way */
	if (layer_rarely(!lane)) {
		if (b->state == LAYER_ADMITTED) {
			if (!b->entering)
				layer_batch_drop(b);
		} else if (b->outside && b->n) {
			outside = event;
			layer_next.clRetainEvent(outside);
		} else {
			b->deps -= b->outside;
			b->outside = false;
			if (err && !b->entering)
				layer_batch_moot(b, &todo);
			else if (!b->deps)
				layer_batch_resolve(b, &todo);
		}
	} else {
		layer_batch_drop_if_empty(b, &todo);
		bool others = layer_permit_awaited(lane);

		if (layer_rarely(lane_due(&lane->state, err, others))) {
			if (others)
				layer_admission_flush(lane, &todo);
			layer_admission_run(lane, &todo);
			if (lane_leaves(&lane->state))
				layer_permit_wake(lane);
		}
	}
	layer_monitor_leave(&todo);
	if (layer_rarely(mark))
		layer_turn_mark(t->queue);
	if (layer_rarely(outside)) {
		layer_monitor_watch(outside);
		layer_next.clReleaseEvent(outside);
	}
	if (layer_rarely(blocking && !err)) {
		/*
		 * The call was made without blocking, so that the queue was not held up for others
		 * while it waited.
		 */
		rtx_cpu_wait_for_gpu(true);
		if (event)
			err = layer_next.clWaitForEvents(1, &event);
		else
			err = layer_next.clFinish(atomic_load(&t->queue->handle));
		rtx_cpu_wait_for_gpu(false);
		if (event)
			layer_next.clReleaseEvent(event);
		layer_gate_finished(t->queue, t->queue->in_order && !err ? t->number : 0);
	}
	return err;
}

/* The program has seen something complete: look what it was. */
void layer_gate_reap(void)
{
	layer_gate_finished(NULL, 0);
}

void layer_gate_drop_kept(void)
{
	struct layer_todo todo;

	if (!layer_events_any_kept())
		return;
	layer_monitor_enter(&todo);
	layer_events_drop_kept(&todo);
	layer_monitor_leave(&todo);
}

uint64_t layer_gate_newest(const struct layer_queue *q)
{
	return q ? atomic_load_explicit(&q->left, memory_order_acquire) : 0;
}

void layer_gate_finished(struct layer_queue *q, uint64_t number)
{
	struct layer_todo todo;

	if (!atomic_load_explicit(&layer_admitted_n, memory_order_relaxed))
		return;
	layer_monitor_enter(&todo);
	if (q)
		layer_completion_raise(q, number, &todo);
	layer_monitor_run_admitted(&todo);
	layer_monitor_leave(&todo);
}

void layer_gate_queue_release(struct layer_queue *q)
{
	bool last;

	layer_monitor_lock();
	last = q->refs == 1;
	/* At once: else of two threads that drop one each, neither would find its own the last. */
	if (q->refs > 1)
		q->refs--;
	layer_monitor_unlock();
	if (!last)
		return;
	layer_turn_mark(q);
	layer_monitor_lock();
	if (q->refs)
		q->refs--;
	layer_monitor_unlock();
}
