// SPDX-License-Identifier: MIT
/*
 * completion.c - what has completed, how long it took, and what will tell of the next end.
 *
 * A short command of an in-order queue is "bare" while no other task wants the engine: the layer
 * asks for no event of its own. The commands of a queue are numbered, and a bare one has completed
 * when a later one has, or when the program has waited for the queue. Where neither can be awaited
 * a marker is put behind it, always before anything that may be held back enters the queue. Where a
 * command failed the numbers say nothing: then each tells of its own end only.
 */
#include "completion.h"
#include "rtxg_clock.h"

cl_int layer_completion_status(cl_event event)
{
	cl_int status;

	if (layer_next.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status),
				      &status, NULL))
		return CL_COMPLETE; /* cannot be asked: do not keep the engine for it */
	return status;
}

static bool complete(cl_event event)
{
	return layer_completion_status(event) <= CL_COMPLETE;
}

/*
 * Asks the device when it ran the command, which it says of those that have completed. A time of 0
 * is none.
 */
static bool learn_times(struct layer_command *c)
{
	if (c->timed)
		return true;
	c->end = 0;
	if (layer_next.clGetEventProfilingInfo(c->event, CL_PROFILING_COMMAND_END, sizeof(c->end),
					       &c->end, NULL) ||
	    !c->end ||
	    layer_next.clGetEventProfilingInfo(c->event, CL_PROFILING_COMMAND_START,
					       sizeof(c->start), &c->start, NULL))
		return false;
	c->timed = true;
	return true;
}

void layer_completion_raise(struct layer_queue *q, uint64_t number, struct layer_todo *todo)
{
	if (number <= q->done)
		return;
	q->done = number;
	todo->more = true;
	if (layer_rarely(q->marker) && q->done >= q->bare) {
		layer_events_add(&todo->release, q->marker);
		q->marker = NULL;
	}
}

void layer_completion_doubt(void)
{
	for (struct layer_batch *b = layer_batch_unresolved(); b; b = b->unext)
		if (b->queue) {
			b->queue->frail = b->queue->entered;
			b->frail = true;
		}
}

cl_event layer_completion_awaited(const struct layer_batch *b)
{
	for (unsigned int i = 0; i < b->n; i++)
		if (!complete(b->commands[i].event))
			return b->commands[i].event;
	return NULL;
}

/* Nothing of the queue is under way where nothing at all is. */
LAYER_RARE static bool at_rest(struct layer_queue *q)
{
	if (atomic_load(&layer_unresolved_n) || atomic_load(&layer_admitted_n))
		return false;
	q->done = q->frail;
	return true;
}

bool layer_completion_tells(struct layer_queue *q)
{
	return !layer_rarely(q->done < q->frail) || at_rest(q);
}

/* Failed while the device had it, or before: it may have ended before those in front of it. */
LAYER_RARE static void failed(struct layer_command *c, struct layer_todo *todo)
{
	cl_command_queue handle = NULL;
	struct layer_queue *q;

	c->failed = true;
	layer_completion_doubt();
	todo->failed = true;
	if (layer_next.clGetEventInfo(c->event, CL_EVENT_COMMAND_QUEUE, sizeof(handle), &handle,
				      NULL))
		return;
	q = layer_queue_find(handle);
	if (q)
		q->frail = q->entered;
}

bool layer_completion_untold(const struct layer_queue *q)
{
	return q->bare > q->done && !(q->marker && q->marker_number > q->bare);
}

static bool command_complete(struct layer_batch *b, struct layer_command *c,
			     struct layer_todo *todo)
{
	struct layer_queue *q = b->queue;

	if (c->event) {
		cl_int status = CL_COMPLETE;

		if (!c->failed && !(c->times && learn_times(c)))
			status = layer_completion_status(c->event);
		if (layer_rarely(status < CL_COMPLETE))
			failed(c, todo);
		return status <= CL_COMPLETE;
	}
	if (c->number > q->done && q->marker && q->marker_number > c->number && complete(q->marker))
		layer_completion_raise(q, q->marker_number, todo);
	return c->number <= q->done;
}

static bool batch_complete(struct layer_batch *b, struct layer_todo *todo)
{
	struct layer_command *last;

	if (layer_rarely(b->entering))
		return false;
	if (!b->n)
		return true;
	last = &b->commands[b->n - 1];
	if (b->in_order && last->number && last->number <= b->queue->done)
		return true;
	if (!layer_rarely(command_complete(b, last, todo)))
		return false;
	if (b->in_order && !layer_rarely(last->failed || b->queue->done < b->queue->frail)) {
		layer_completion_raise(b->queue, last->number, todo);
		return true;
	}
	for (unsigned int i = 0; i + 1 < b->n; i++)
		if (!command_complete(b, &b->commands[i], todo))
			return false;
	return true;
}

void layer_completion_begin(struct layer_lane *lane, const struct layer_batch *b)
{
	bool measure =
		lane_measures(&lane->meter, &lane->state, !b->queue || b->queue->times, b->est_ns);

	lane_meter_begin(&lane->meter, layer_rarely(measure) ? rtxg_now_ns() : 0);
}

/* What is left of the batch is how long its commands may have taken. */
static void finish(struct layer_lane *lane, struct layer_batch *b, struct layer_todo *todo)
{
	uint64_t device_ns = 0, covered = 0;
	bool known = true;

	for (unsigned int i = 0; i < b->n; i++) {
		struct layer_command *c = &b->commands[i];
		cl_ulong start, end;

		if (!layer_rarely(c->event && c->times) || !learn_times(c) || c->end < c->start) {
			c->timed = false;
			known = false;
		} else {
			start = c->start;
			end = c->end;
			lane_learn(&lane->estimates, c->key, c->units, end - start);
			/* Commands that overlap (out of order) occupy the engine once. */
			if (start < covered)
				start = covered;
			if (end > start)
				device_ns += end - start;
			if (end > covered)
				covered = end;
		}
		if (layer_rarely(c->failed))
			layer_events_keep(todo, c->event);
		else if (layer_rarely(c->event))
			layer_events_add(&todo->release, c->event);
	}
	layer_batch_end(lane, b);
	lane_finish(&lane->state, b->est_ns);
	lane_row_ended(&lane->row, &lane->state);
	lane->unreported++;
	lane->unreported_ns += known ? device_ns : 0;
}

/*
 * Where the device does not say how long commands take: the time since the engine was begun with,
 * or since the last look that found something complete, is divided among what has completed, as the
 * estimates are. It is an upper bound, and a better guess than none.
 */
static void measure(struct layer_lane *lane, const struct layer_batch *done)
{
	uint64_t wall, expected = 0;
	unsigned int n = 0;

	if (!layer_rarely(lane->meter.from)) {
		if (layer_rarely(lane_measures_rest(&lane->meter, &lane->state)))
			lane_meter_begin(&lane->meter, rtxg_now_ns());
		return;
	}
	wall = lane_meter_read(&lane->meter, &lane->state, rtxg_now_ns());
	if (!wall)
		return;
	for (const struct layer_batch *b = done; b; b = b->next)
		for (unsigned int i = 0; i < b->n; i++)
			if (!b->commands[i].timed) {
				expected += b->commands[i].est_ns;
				n++;
			}
	for (const struct layer_batch *b = done; b; b = b->next)
		for (unsigned int i = 0; i < b->n; i++) {
			const struct layer_command *c = &b->commands[i];

			if (c->timed)
				continue;
			lane_learn(&lane->estimates, c->key, c->units,
				   lane_part(wall, c->est_ns, expected, n));
		}
}

/* The newest first, which may tell of those before it. */
void layer_completion_reap(struct layer_lane *lane, struct layer_todo *todo)
{
	struct layer_batch *done = NULL;

	for (struct layer_batch *b = lane->admitted_tail, *before; b; b = before) {
		before = b->prev;
		if (!batch_complete(b, todo))
			continue;
		finish(lane, b, todo);
		b->next = done;
		done = b;
	}
	if (done)
		measure(lane, done);
	for (struct layer_batch *b = done, *after; b; b = after) {
		after = b->next;
		b->n = 0;
		layer_batch_drop(b);
	}
}

/* What tells of the end of a command, if anything does. */
static cl_event telling(const struct layer_batch *b, const struct layer_command *c)
{
	const struct layer_queue *q = b->queue;

	if (c->event)
		return c->event;
	return q->marker && q->marker_number > c->number ? q->marker : NULL;
}

/* Is there something to be told of, by which event, at the oldest batch? */
static enum lane_oldest oldest(struct layer_batch *b, struct layer_todo *todo, cl_event *event)
{
	cl_event last = telling(b, &b->commands[b->n - 1]);

	*event = last;
	if (last && complete(last)) {
		/* In an out-of-order queue an older one may be late. */
		*event = NULL;
		for (unsigned int i = 0; i < b->n && !*event; i++) {
			*event = telling(b, &b->commands[i]);
			if (*event && complete(*event))
				*event = NULL;
		}
	}
	if (*event)
		return LANE_TELLS;
	return batch_complete(b, todo) ? LANE_ENDED : LANE_SILENT;
}

void layer_completion_arm(struct layer_lane *lane, struct layer_todo *todo)
{
	struct layer_batch *b = lane->admitted_head;
	bool armed = atomic_load(&lane->armed);
	cl_event event;

	if (armed || !b || !b->n || todo->arm_n == sizeof(todo->arm) / sizeof(todo->arm[0]))
		return;
	switch (lane_arming(armed, oldest(b, todo, &event))) {
	case LANE_LEAVE:
		break;
	case LANE_LOOK_AGAIN:
		todo->again = true;
		break;
	case LANE_ARM:
		layer_next.clRetainEvent(event);
		todo->arm[todo->arm_n].event = event;
		todo->arm[todo->arm_n++].lane = lane;
		atomic_store(&lane->armed, true);
		break;
	}
}
