// SPDX-License-Identifier: MIT
/*
 * monitor.c - the one lock, and what is done when it is left.
 *
 * No call of OpenCL that can run the program's code (opening a gate, dropping the last reference)
 * is made under the lock: such calls are collected in a struct layer_todo and made after it.
 * Callbacks of OpenCL only try the lock; if it is taken they leave a note to its holder. Nothing
 * here waits.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "admission.h"
#include "completion.h"
#include "monitor.h"

/*
 * The lock: taken and given back by one instruction each where no thread waits. pthread's takes 75,
 * three times for a launch and the wait for it (U. Drepper, "Futexes Are Tricky", mutex 2).
 */
enum { FREE, TAKEN, WAITED_FOR };
static atomic_uint lock; /* futex */
/* futex: counts enqueue calls that have returned and that others wait behind; under the lock */
static atomic_uint told;
static atomic_bool look_wanted; /* the note: all lanes are to be looked at */
/* an event that completes from outside has done so, or a command has failed */
static atomic_bool outside_wanted;
static struct layer_lane *lanes[64 * LAYER_ENGINES];
static atomic_uint lanes_n;

static __thread unsigned int making_calls; /* this thread is in layer_todo_do */

static void CL_CALLBACK on_complete(cl_event event, cl_int status, void *arg);
static void CL_CALLBACK on_outside(cl_event event, cl_int status, void *arg);

static bool lock_try(void)
{
	unsigned int free = FREE;

	return atomic_compare_exchange_strong_explicit(&lock, &free, TAKEN, memory_order_acquire,
						       memory_order_relaxed);
}

LAYER_RARE static void lock_wait(void)
{
	int saved = errno;

	while (atomic_exchange_explicit(&lock, WAITED_FOR, memory_order_acquire) != FREE)
		syscall(SYS_futex, &lock, FUTEX_WAIT_PRIVATE, WAITED_FOR, NULL, NULL, 0);
	errno = saved;
}

LAYER_RARE static void lock_wake(void)
{
	int saved = errno;

	syscall(SYS_futex, &lock, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	errno = saved;
}

static void lock_take(void)
{
	if (layer_rarely(!lock_try()))
		lock_wait();
}

static void lock_free(void)
{
	if (layer_rarely(atomic_exchange_explicit(&lock, FREE, memory_order_release) == WAITED_FOR))
		lock_wake();
}

/* What waits for nothing any more but for its own event, which has come. */
static void outside_ended(struct layer_todo *todo)
{
	for (struct layer_batch *b = layer_batch_unresolved(), *after; b; b = after) {
		cl_int status;

		after = b->unext;
		if (!b->outside || !b->n)
			continue;
		status = layer_completion_status(b->commands[0].event);
		if (status > CL_COMPLETE)
			continue;
		if (status < CL_COMPLETE)
			layer_completion_doubt();
		b->outside = false;
		if (--b->deps)
			continue;
		layer_batch_resolve(b, todo);
		after = layer_batch_unresolved(); /* others may have gone with it */
	}
}

/* What failed before it had a permit waits for none. Whatever else may fail is watched. */
static void failed_ended(struct layer_todo *todo)
{
	for (struct layer_batch *b = layer_batch_unresolved(), *after; b; b = after) {
		cl_event awaited;

		after = b->unext;
		if (!b->frail || !b->n || b->entering)
			continue;
		awaited = layer_completion_awaited(b);
		if (!awaited) {
			layer_batch_moot(b, todo);
			after = layer_batch_unresolved(); /* others may have gone with it */
		} else if (awaited != b->watched) {
			b->watched = awaited;
			layer_next.clRetainEvent(awaited);
			layer_events_add(&todo->watch, awaited);
		}
	}
}

void layer_monitor_failed(void)
{
	atomic_store(&outside_wanted, true);
}

void layer_monitor_run_all(struct layer_todo *todo)
{
	if (atomic_load(&outside_wanted) && atomic_exchange(&outside_wanted, false)) {
		outside_ended(todo);
		failed_ended(todo);
	}
	/* A command of one engine may tell of those before it on another. */
	do {
		todo->more = false;
		for (unsigned int i = 0; i < atomic_load(&lanes_n); i++)
			layer_admission_run(lanes[i], todo);
	} while (todo->more);
}

void layer_monitor_run_admitted(struct layer_todo *todo)
{
	do {
		todo->more = false;
		for (unsigned int i = 0; i < atomic_load_explicit(&lanes_n, memory_order_relaxed);
		     i++)
			if (lanes[i]->state.admitted)
				layer_admission_run(lanes[i], todo);
	} while (todo->more);
}

void layer_monitor_enter(struct layer_todo *todo)
{
	lock_take();
	layer_todo_init(todo);
}

/* Unlocks, and makes the calls. */
static void leave(struct layer_todo *todo)
{
	if (layer_rarely(todo->failed))
		layer_monitor_failed();
	if (layer_rarely(todo->again || todo->failed))
		atomic_store(&look_wanted, true);
	lock_free();
	if (!layer_rarely(!layer_todo_empty(todo)))
		return;
	making_calls++;
	layer_todo_do(todo, on_complete, on_outside);
	making_calls--;
}

/* What callbacks noted while this thread had the lock. One that finds it free looks by itself. */
static void look_at_notes(void)
{
	while (layer_rarely(atomic_load(&look_wanted)) && lock_try()) {
		struct layer_todo more;

		atomic_store(&look_wanted, false);
		layer_todo_init(&more);
		layer_monitor_run_all(&more);
		leave(&more);
	}
}

void layer_monitor_leave(struct layer_todo *todo)
{
	leave(todo);
	/*
	 * Within calls that are being made, the outermost of this thread looks. Whether there is
	 * something to look at is asked first: a thread's own variable takes a call to find.
	 */
	if (layer_rarely(atomic_load(&look_wanted)) && !making_calls)
		look_at_notes();
}

void layer_monitor_lock(void)
{
	lock_take();
}

void layer_monitor_unlock(void)
{
	struct layer_todo todo;

	layer_todo_init(&todo);
	layer_monitor_leave(&todo);
}

void layer_monitor_await(void)
{
	unsigned int seen = atomic_load(&told);

	lock_free();
	/* Also within calls that are being made: this thread is not back there for a while. */
	look_at_notes();
	syscall(SYS_futex, &told, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	lock_take();
}

void layer_monitor_tell(void)
{
	atomic_fetch_add(&told, 1);
	syscall(SYS_futex, &told, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void layer_monitor_add(struct layer_lane *lane)
{
	unsigned int n = atomic_load(&lanes_n);

	if (n < sizeof(lanes) / sizeof(lanes[0])) {
		lanes[n] = lane;
		atomic_store(&lanes_n, n + 1);
	}
}

/* A callback of OpenCL has news of that lane, or of all (NULL). */
static void look_from_callback(struct layer_lane *lane)
{
	struct layer_todo todo;

	if (making_calls) {
		/*
		 * It had completed before we asked: layer_monitor_leave looks again, instead of a
		 * recursion without end.
		 */
		atomic_store(&look_wanted, true);
		return;
	}
	for (int i = 0; i < 2; i++) {
		if (lock_try()) {
			layer_todo_init(&todo);
			if (lane)
				layer_admission_run(lane, &todo);
			else
				layer_monitor_run_all(&todo);
			layer_monitor_leave(&todo);
			return;
		}
		atomic_store(&look_wanted, true);
	}
}

static void CL_CALLBACK on_complete(cl_event event, cl_int status, void *arg)
{
	struct layer_lane *lane = arg;

	(void)event;
	(void)status;
	atomic_store(&lane->armed, false);
	look_from_callback(lane);
}

static void CL_CALLBACK on_outside(cl_event event, cl_int status, void *arg)
{
	(void)event;
	(void)status;
	(void)arg;
	atomic_store(&outside_wanted, true);
	look_from_callback(NULL);
}

void layer_monitor_watch(cl_event event)
{
	struct layer_todo todo;

	if (!layer_next.clSetEventCallback(event, CL_COMPLETE, on_outside, NULL))
		return;
	layer_monitor_enter(&todo);
	for (struct layer_batch *b = layer_batch_unresolved(); b; b = b->unext)
		if (b->outside && b->n && b->commands[0].event == event) {
			b->outside = false;
			if (!--b->deps)
				layer_batch_resolve(b, &todo);
			break;
		}
	layer_monitor_run_all(&todo);
	layer_monitor_leave(&todo);
}

unsigned int layer_monitor_holds(cl_event event)
{
	unsigned int holds = 0;

	layer_monitor_lock();
	if (layer_events_any_kept())
		holds += layer_events_kept(event);
	for (struct layer_batch *b = layer_batch_unresolved(); b; b = b->unext)
		holds += layer_batch_holds(b, event);
	for (unsigned int l = 0; l < atomic_load(&lanes_n); l++)
		for (struct layer_batch *b = lanes[l]->admitted_head; b; b = b->next)
			holds += layer_batch_holds(b, event);
	layer_monitor_unlock();
	return holds;
}

void layer_monitor_after_fork(void)
{
	atomic_store(&lock, FREE);
	atomic_store(&look_wanted, false);
	atomic_store(&outside_wanted, false);
	atomic_store(&lanes_n, 0);
	layer_batch_forget();
	layer_map_forget();
}
