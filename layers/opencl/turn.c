// SPDX-License-Identifier: MIT
/*
 * turn.c - calls on one queue, one by one, and the markers that are put between them.
 */
#include "completion.h"
#include "monitor.h"
#include "turn.h"

void layer_turn_wait(struct layer_queue *q)
{
	while (layer_rarely(q->busy) && !pthread_equal(q->owner, pthread_self())) {
		q->waiters++;
		layer_monitor_await();
		q->waiters--;
	}
}

void layer_turn_begin(struct layer_queue *q)
{
	q->busy++;
	q->owner = pthread_self();
}

void layer_turn_end(struct layer_queue *q)
{
	if (--q->busy)
		return;
	atomic_store_explicit(&q->left, q->entered, memory_order_release);
	if (layer_rarely(q->waiters))
		layer_monitor_tell();
}

void layer_turn_marker(struct layer_queue *q, cl_command_queue handle, uint64_t number)
{
	cl_event marker = NULL, old = NULL;
	struct layer_todo todo;

	if (layer_next.clEnqueueMarkerWithWaitList(handle, 0, NULL, &marker))
		marker = NULL;
	layer_monitor_enter(&todo);
	if (marker && q->bare <= q->done) {
		old = marker; /* the program has seen the end meanwhile: nothing is left to tell */
	} else if (marker) {
		old = q->marker;
		q->marker = marker;
		q->marker_number = number;
	} else {
		/* cannot be asked: do not keep the engine for it */
		layer_completion_raise(q, q->bare, &todo);
	}
	layer_monitor_run_all(&todo);
	layer_monitor_leave(&todo);
	if (old)
		layer_next.clReleaseEvent(old);
}

void layer_turn_mark(struct layer_queue *q)
{
	cl_command_queue handle;
	struct layer_todo todo;
	uint64_t number;

	layer_monitor_enter(&todo);
	q->marker_wanted = q->busy && layer_completion_untold(q);
	if (!q->busy && !q->refs && layer_completion_untold(q)) {
		/*
		 * The program dropped its last reference while a call was under way, and the queue
		 * may be gone. Nothing will ever tell: do not keep the engine for it.
		 */
		layer_completion_raise(q, q->bare, &todo);
		layer_monitor_run_all(&todo);
	}
	if (q->busy || !layer_completion_untold(q)) {
		layer_monitor_leave(&todo);
		return;
	}
	layer_turn_begin(q);
	number = ++q->entered;
	handle = atomic_load(&q->handle);
	layer_next.clRetainCommandQueue(handle);
	layer_monitor_leave(&todo);
	layer_turn_marker(q, handle, number);
	layer_monitor_enter(&todo);
	layer_turn_end(q);
	layer_monitor_leave(&todo);
	layer_next.clReleaseCommandQueue(handle);
}

unsigned int layer_turn_untold(const struct layer_lane *lane, struct layer_queue **queues)
{
	unsigned int n = 0;

	for (const struct layer_batch *b = lane->admitted_head; b && n < LAYER_MARK_QUEUES;
	     b = b->next) {
		bool have = !b->queue || !layer_completion_untold(b->queue);

		if (!have && b->queue->busy)
			have = b->queue->marker_wanted = true;
		for (unsigned int i = 0; i < n; i++)
			have |= queues[i] == b->queue;
		if (!have)
			queues[n++] = b->queue;
	}
	return n;
}
