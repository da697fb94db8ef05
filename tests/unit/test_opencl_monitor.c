// SPDX-License-Identifier: MIT
/*
 * test_opencl_monitor.c - what callbacks note is looked at before a thread of the OpenCL layer
 * sleeps, and a queue that the program has dropped keeps no engine: monitor.c and turn.c, with a
 * stand-in for OpenCL.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "admission.h"
#include "batch.h"
#include "completion.h"
#include "monitor.h"
#include "queue.h"
#include "turn.h"

#define PATIENCE_S 60

static struct layer_lane lane;
static sem_t looked;

/* What the layer asks of librtxg for a lane is left out. */
void layer_admission_run(struct layer_lane *l, struct layer_todo *todo)
{
	layer_completion_reap(l, todo);
	sem_post(&looked);
}

/* --- notes ------------------------------------------------------------------------------------ */

typedef void(CL_CALLBACK *completed)(cl_event event, cl_int status, void *arg);
static completed callback;

static cl_int CL_API_CALL set_callback(cl_event event, cl_int status, completed function, void *arg)
{
	(void)event, (void)status, (void)arg;
	callback = function;
	return CL_SUCCESS;
}

/* An event has completed: on a thread of the implementation's. */
static void *complete(void *arg)
{
	callback(arg, CL_COMPLETE, NULL);
	return NULL;
}

static struct layer_queue queue;

static void *wait_for_turn(void *arg)
{
	struct layer_todo todo;
	pthread_t other;

	layer_monitor_enter(&todo);
	/* The lock is taken while the event completes, so that a note is all that is left of it. */
	if (pthread_create(&other, NULL, complete, arg))
		abort();
	pthread_join(other, NULL);
	layer_turn_wait(&queue);
	layer_monitor_leave(&todo);
	return NULL;
}

static void test_a_note_is_looked_at_before_a_call_waits_for_its_turn(void **state)
{
	cl_event event = (cl_event)&lane;
	struct timespec until;
	struct layer_todo todo;
	pthread_t waiter;
	int err;

	(void)state;
	layer_next.clSetEventCallback = set_callback;
	sem_init(&looked, 0, 0);
	layer_monitor_add(&lane);
	layer_monitor_watch(event); /* hands out the callback */
	while (!sem_trywait(&looked))
		;
	/* A call of this thread's is under way on the queue for as long as it takes. */
	layer_monitor_enter(&todo);
	layer_turn_begin(&queue);
	layer_monitor_leave(&todo);
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_turn, event), 0);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	do
		err = sem_timedwait(&looked, &until);
	while (err && errno == EINTR);
	layer_monitor_enter(&todo);
	layer_turn_end(&queue);
	layer_monitor_leave(&todo);
	pthread_join(waiter, NULL);
	assert_int_equal(err, 0);
}

/* --- queues that are gone --------------------------------------------------------------------- */

static void test_a_queue_dropped_under_a_call_keeps_no_engine(void **state)
{
	struct layer_queue *untold[LAYER_MARK_QUEUES];
	struct layer_batch *b = layer_batch_new(&lane, &queue);
	struct layer_command *c = layer_batch_command(b);
	struct layer_todo todo;

	(void)state;
	/* A command without an event of the layer's, in a queue that takes no marker any more. */
	queue.in_order = b->in_order = true;
	queue.entered = queue.bare = 1;
	queue.refs = 0;
	*c = (struct layer_command){ .number = 1 };
	lane.state.admitted = 1;
	layer_monitor_enter(&todo);
	layer_batch_begin(&lane, b);
	assert_int_equal(layer_turn_untold(&lane, untold), 1);
	layer_monitor_leave(&todo);
	layer_turn_mark(untold[0]);
	layer_monitor_enter(&todo);
	assert_int_equal(layer_turn_untold(&lane, untold), 0);
	assert_int_equal(lane.state.admitted, 0);
	layer_monitor_leave(&todo);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_note_is_looked_at_before_a_call_waits_for_its_turn),
		cmocka_unit_test(test_a_queue_dropped_under_a_call_keeps_no_engine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
