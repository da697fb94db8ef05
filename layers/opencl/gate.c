// SPDX-License-Identifier: MIT
/*
 * gate.c - when a command may run: batches, permits, dependencies, completion.
 *
 * A command always goes straight into the program's own queue, in the program's own call. What the
 * layer can add is one more event in its wait list: a "gate", a user event that is set when the
 * command may run. So order, events, callbacks and errors stay those of the OpenCL implementation,
 * and no enqueue call waits for another process.
 *
 * Commands are gathered in batches. A batch is
 *   blocked    it depends on something that may never come by itself: a user event, or a batch that
 *              has no permit yet;
 *   ready      only the permit is missing;
 *   admitted   it runs under a permit, and everything it depends on is admitted too, so it
 *              completes by itself.
 * A permit is taken only for a ready batch. So no program ever holds one while it waits for
 * something that is not certain to come, be it a user event or another permit: no deadlock, within
 * a process or across processes.
 *
 * Blocked and ready batches are "unresolved" and in the event table. While nothing is unresolved,
 * an enqueue looks at no dependency at all: it joins the current admitted batch, at the price of a
 * lock that no thread contends.
 *
 * A short command of an in-order queue is "bare" while no other task wants the engine: the layer
 * asks for no event of its own. The commands of a queue are numbered, and a bare one has completed
 * when a later one has, or when the program has waited for the queue. Where neither can be awaited
 * a marker is put behind it, always before anything that may be held back enters the queue.
 *
 * Rules. No call of OpenCL that can run the program's code (opening a gate, dropping the last
 * reference) is made under the lock: such calls are collected in a struct layer_todo and made after
 * it.
 * Callbacks of OpenCL only try the lock; if it is taken they leave a note (reap_wanted) to its
 * holder. Nothing here waits, except the helper threads.
 */
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "estimate.h"
#include "events.h"
#include "gate.h"
#include "rtxg_clock.h"
#include "rtxg_cpu.h"

#define MS 1000000ull
/* how much execution time may be queued ahead on the device */
#define AHEAD_DEFAULT_NS (4 * MS)
#define BATCH_COMMANDS	 256
#define ADMITTED_MAX	 16 /* librtxg allows 32 launches outstanding */
/* how late an unnoticed completion is noticed while no other task wants the engine */
#define POLL_NS (2 * MS)
/* the same while the next permit is waited for, if no callback tells of it after all */
#define DRAIN_NS (500 * MS)
/* the same while the program has noticed each one by itself, for so many looks of the helper */
#define POLL_SELDOM_NS	  (8 * MS)
#define POLL_SELDOM_AFTER 8
/* how long an engine counts as contended after the last sign of it */
#define CONTENDED_NS (200 * MS)
/* a bare command takes no longer, by estimate; and what goes without an event in a row */
#define BARE_NS	    (MS / 4)
#define BARE_ROW_NS MS
#define BARE_ROW    32
/* how often an engine that is begun with for short commands is not measured, for one that is */
#define UNMEASURED 7
/* a longer measurement is none of commands */
#define MEASURE_MAX_NS (100000 * MS)
#define MARK_QUEUES    16

enum state { BLOCKED, READY, ADMITTED };

struct layer_command {
	cl_event event;	 /* NULL: bare */
	uint64_t number; /* in its queue; 0: none */
	uint32_t key;
	uint64_t units;
	uint64_t est_ns; /* when it was enqueued */
	bool mapped;	 /* in the event table */
	bool times;	 /* its event will say when the device ran it */
	bool timed;	 /* that is known */
	cl_ulong start, end;
};

struct layer_batch {
	struct layer_batch *prev, *next;   /* in its lane's list */
	struct layer_batch *uprev, *unext; /* among the unresolved */
	struct layer_lane *lane;	   /* NULL: occupies no engine */
	struct layer_queue *queue;	   /* NULL: a user event */
	enum state state;
	/* unresolved batches (or a user event's setting) that it waits for */
	unsigned int deps;
	unsigned int entering; /* enqueue calls that have not returned */
	bool in_order;	       /* all its commands are in one in-order queue */
	/* its first command stands in that queue: what comes behind needs no gate */
	bool first_in;
	/* its event completes by what is outside: a semaphore, another API. Counted in deps */
	bool outside;
	unsigned int refs; /* of a user event or one of another API: the program's references */
	cl_event gate;
	struct layer_batch **dependents;
	unsigned int dependents_n, dependents_cap;
	struct layer_command *commands;
	unsigned int n, cap;
	uint64_t est_ns;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* an enqueue call has returned that others wait behind */
static pthread_cond_t entered = PTHREAD_COND_INITIALIZER;
static atomic_bool reap_wanted;
static atomic_bool outside_wanted; /* an event that completes from outside has done so */
static atomic_uint events_n;	   /* events whose references are counted */
static atomic_uint unresolved_n;   /* written under the lock, looked at without */
static atomic_uint admitted_n;
static bool more_done; /* more is known of a queue than when a look began */
static struct layer_batch *unresolved;
static struct layer_batch *spare;
static struct layer_lane *lanes[64 * LAYER_ENGINES];
static atomic_uint lanes_n;
static uint64_t ahead_ns = AHEAD_DEFAULT_NS;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static __thread unsigned int making_calls; /* this thread is in layer_todo_do */

static void CL_CALLBACK on_complete(cl_event event, cl_int status, void *arg);
static void run(struct layer_lane *lane, struct layer_todo *todo);
static void outside_ended(struct layer_todo *todo);

static void signal_helper(struct layer_lane *lane)
{
	atomic_fetch_add(&lane->signals, 1);
	if (atomic_load(&lane->sleeping))
		syscall(SYS_futex, &lane->signals, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- what is left for after the lock ---- */

/* Looks at everything that a note may be about. */
static void run_all(struct layer_todo *todo)
{
	if (atomic_load(&outside_wanted) && atomic_exchange(&outside_wanted, false))
		outside_ended(todo);
	/* A command of one engine may tell of those before it on another. */
	do {
		more_done = false;
		for (unsigned int i = 0; i < atomic_load(&lanes_n); i++)
			run(lanes[i], todo);
	} while (more_done);
}

/*
 * Unlocks, then makes the calls that were collected, then does what others could not do because of
 * us.
 */
static void unlock_and_do(struct layer_todo *todo)
{
	pthread_mutex_unlock(&lock);
	if (!layer_todo_empty(todo)) {
		making_calls++;
		layer_todo_do(todo, on_complete);
		making_calls--;
	}
	/* Within calls that are being made, the outermost of this thread looks. */
	while (atomic_load(&reap_wanted) && !making_calls && !pthread_mutex_trylock(&lock)) {
		struct layer_todo more;

		atomic_store(&reap_wanted, false);
		layer_todo_init(&more);
		run_all(&more);
		pthread_mutex_unlock(&lock);
		making_calls++;
		layer_todo_do(&more, on_complete);
		making_calls--;
	}
}

void layer_gate_lock(void)
{
	pthread_mutex_lock(&lock);
}

void layer_gate_unlock(void)
{
	struct layer_todo todo;

	layer_todo_init(&todo);
	unlock_and_do(&todo);
}

/* ---- batches ---- */

static struct layer_batch *batch_new(struct layer_lane *lane, struct layer_queue *queue)
{
	struct layer_batch *b = spare;

	if (b) {
		struct layer_command *commands = b->commands;
		struct layer_batch **dependents = b->dependents;
		unsigned int cap = b->cap, dependents_cap = b->dependents_cap;

		spare = b->next;
		memset(b, 0, sizeof(*b));
		b->commands = commands;
		b->cap = cap;
		b->dependents = dependents;
		b->dependents_cap = dependents_cap;
	} else {
		b = calloc(1, sizeof(*b));
		if (!b)
			return NULL;
	}
	b->lane = lane;
	b->queue = queue;
	b->in_order = queue && queue->in_order;
	return b;
}

static void batch_drop(struct layer_batch *b)
{
	b->next = spare;
	spare = b;
}

/* Written under the lock only. */
static void count(atomic_uint *number, int change)
{
	atomic_store_explicit(
		number, atomic_load_explicit(number, memory_order_relaxed) + (unsigned int)change,
		memory_order_relaxed);
}

static void unresolved_add(struct layer_batch *b)
{
	b->uprev = NULL;
	b->unext = unresolved;
	if (unresolved)
		unresolved->uprev = b;
	unresolved = b;
	count(&unresolved_n, 1);
}

static void unresolved_remove(struct layer_batch *b)
{
	if (b->uprev)
		b->uprev->unext = b->unext;
	else
		unresolved = b->unext;
	if (b->unext)
		b->unext->uprev = b->uprev;
	count(&unresolved_n, -1);
}

static void list_add(struct layer_batch **head, struct layer_batch **tail, struct layer_batch *b)
{
	b->next = NULL;
	b->prev = *tail;
	if (*tail)
		(*tail)->next = b;
	else
		*head = b;
	*tail = b;
}

static void list_remove(struct layer_batch **head, struct layer_batch **tail, struct layer_batch *b)
{
	if (b->prev)
		b->prev->next = b->next;
	else
		*head = b->next;
	if (b->next)
		b->next->prev = b->prev;
	else
		*tail = b->prev;
}

static void depend(struct layer_batch *b, struct layer_batch *on)
{
	if (on->dependents_n == on->dependents_cap) {
		unsigned int cap = on->dependents_cap ? 2 * on->dependents_cap : 8;
		struct layer_batch **more = realloc(on->dependents, cap * sizeof(*more));

		if (!more)
			layer_no_memory();
		on->dependents = more;
		on->dependents_cap = cap;
	}
	on->dependents[on->dependents_n++] = b;
	b->deps++;
}

static void make_ready(struct layer_batch *b)
{
	b->state = READY;
	list_add(&b->lane->ready_head, &b->lane->ready_tail, b);
}

/* The batch will complete by itself from here: who waits for it may go on. */
static void resolve(struct layer_batch *b, struct layer_todo *todo)
{
	/* those that occupy no engine resolve at once: a list instead of recursion */
	struct layer_batch *work = b;

	b->next = NULL;
	while (work) {
		struct layer_batch *done = work;

		work = done->next;
		done->state = ADMITTED;
		unresolved_remove(done);
		if (done->queue && done->queue->tail == done)
			done->queue->tail = NULL;
		for (unsigned int i = 0; i < done->n; i++) {
			if (done->commands[i].mapped) {
				layer_map_remove(done->commands[i].event);
				done->commands[i].mapped = false;
			}
			if (!done->lane)
				layer_events_add(&todo->release, done->commands[i].event);
		}
		for (unsigned int i = 0; i < done->dependents_n; i++) {
			struct layer_batch *d = done->dependents[i];

			if (--d->deps)
				continue;
			if (d->lane) {
				make_ready(d);
				/* another lane, perhaps: unlock_and_do looks */
				atomic_store(&reap_wanted, true);
			} else {
				d->next = work;
				work = d;
			}
		}
		done->dependents_n = 0;
		if (!done->lane) {
			if (!done->queue)
				atomic_fetch_sub(&events_n, 1);
			done->n = 0;
			if (!done->entering)
				batch_drop(done);
		}
	}
}

/*
 * An engine is begun with. How long its commands take is measured where that costs nothing, beside
 * them or beside sharing the engine; else now and then.
 */
static void begin_measuring(struct layer_lane *lane, const struct layer_batch *b)
{
	bool measure = b->queue && !b->queue->times &&
		       (lane->contended || b->est_ns > BARE_NS || lane->unmeasured >= UNMEASURED);

	lane->measured_from = measure ? rtxg_now_ns() : 0;
	lane->unmeasured = measure ? 0 : lane->unmeasured + 1;
}

/* The permit for it has been taken. */
static void admit(struct layer_lane *lane, struct layer_batch *b, struct layer_todo *todo)
{
	bool was_unresolved = b->state == READY;

	if (was_unresolved) {
		list_remove(&lane->ready_head, &lane->ready_tail, b);
		resolve(b, todo);
	}
	b->state = ADMITTED;
	if (!lane->admitted)
		begin_measuring(lane, b);
	list_add(&lane->admitted_head, &lane->admitted_tail, b);
	lane->admitted++;
	lane->launches++;
	lane->outstanding_ns += b->est_ns;
	lane->current = b;
	count(&admitted_n, 1);
	if (b->gate) {
		layer_events_add(&todo->open, b->gate);
		b->gate = NULL;
	}
	/* The program need not look again: it may wait for something else for ever. */
	if (lane->asleep)
		signal_helper(lane);
}

/* ---- completion ---- */

static bool complete(cl_event event)
{
	cl_int status;

	if (layer_next.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status),
				      &status, NULL))
		return true;	      /* cannot be asked: do not keep the engine for it */
	return status <= CL_COMPLETE; /* negative: terminated by an error */
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

/* That command of a queue and all before it have completed. */
static void raise_done(struct layer_queue *q, uint64_t number, struct layer_todo *todo)
{
	if (number <= q->done)
		return;
	q->done = number;
	more_done = true;
	if (q->marker && q->done >= q->bare) {
		layer_events_add(&todo->release, q->marker);
		q->marker = NULL;
	}
}

/* Is there something in the queue that nothing tells of? */
static bool untold(const struct layer_queue *q)
{
	return q->bare > q->done && !(q->marker && q->marker_number > q->bare);
}

static bool command_complete(struct layer_batch *b, struct layer_command *c,
			     struct layer_todo *todo)
{
	struct layer_queue *q = b->queue;

	if (c->event && !(c->times && learn_times(c)) && !complete(c->event))
		return false;
	if (c->event)
		return true;
	if (c->number > q->done && q->marker && q->marker_number > c->number && complete(q->marker))
		raise_done(q, q->marker_number, todo);
	return c->number <= q->done;
}

static bool batch_complete(struct layer_batch *b, struct layer_todo *todo)
{
	struct layer_command *last;

	if (b->entering)
		return false;
	if (!b->n)
		return true;
	last = &b->commands[b->n - 1];
	if (b->in_order && last->number && last->number <= b->queue->done)
		return true;
	if (!command_complete(b, last, todo))
		return false;
	if (b->in_order) {
		raise_done(b->queue, last->number, todo);
		return true;
	}
	for (unsigned int i = 0; i + 1 < b->n; i++)
		if (!command_complete(b, &b->commands[i], todo))
			return false;
	return true;
}

/* What is left of the batch is how long its commands may have taken. */
static void finish(struct layer_lane *lane, struct layer_batch *b, struct layer_todo *todo)
{
	uint64_t device_ns = 0, covered = 0;
	bool known = true;

	for (unsigned int i = 0; i < b->n; i++) {
		struct layer_command *c = &b->commands[i];
		cl_ulong start, end;

		if (!c->event || !c->times || !learn_times(c) || c->end < c->start) {
			c->timed = false;
			known = false;
		} else {
			start = c->start;
			end = c->end;
			layer_learn(lane, c->key, c->units, end - start);
			/* Commands that overlap (out of order) occupy the engine once. */
			if (start < covered)
				start = covered;
			if (end > start)
				device_ns += end - start;
			if (end > covered)
				covered = end;
		}
		if (c->event)
			layer_events_add(&todo->release, c->event);
	}
	list_remove(&lane->admitted_head, &lane->admitted_tail, b);
	lane->admitted--;
	lane->finished++;
	lane->outstanding_ns -= b->est_ns;
	count(&admitted_n, -1);
	if (lane->current == b)
		lane->current = NULL;
	if (!lane->admitted) {
		lane->bare = 0;
		lane->bare_ns = 0;
	}
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
	uint64_t now, wall, expected = 0;
	unsigned int n = 0;

	if (!lane->measured_from) {
		if (lane->admitted && ++lane->unmeasured > UNMEASURED) {
			lane->measured_from = rtxg_now_ns();
			lane->unmeasured = 0;
		}
		return;
	}
	now = rtxg_now_ns();
	wall = now - lane->measured_from;
	lane->measured_from = lane->admitted ? now : 0;
	if (wall > MEASURE_MAX_NS)
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
			layer_learn(lane, c->key, c->units,
				    expected ? (uint64_t)((double)wall * (double)c->est_ns /
							  (double)expected)
					     : wall / n);
		}
}

/*
 * Tells librtxg what has completed. After the next batch was admitted where one was ready: the host
 * would take the moment between the two for a pause of the program, and give the engine away.
 */
static void report(struct layer_lane *lane)
{
	if (!lane->unreported)
		return;
	for (; lane->unreported; lane->unreported--) {
		rtx_gpu_complete(lane->gpu->handle, lane->engine, lane->unreported_ns);
		lane->unreported_ns = 0;
	}
	/* It sleeps for that only where the engine is contended. */
	if (!lane->admitted && lane->contended)
		signal_helper(lane);
}

/* The newest first, which may tell of those before it. */
static void reap(struct layer_lane *lane, struct layer_todo *todo)
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
		batch_drop(b);
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

/*
 * Has the oldest batch tell us when its last command completes. Where nothing tells of it yet, the
 * helper puts a marker behind it.
 */
static void arm(struct layer_lane *lane, struct layer_todo *todo)
{
	struct layer_batch *b = lane->admitted_head;
	cl_event event;

	if (atomic_load(&lane->armed) || !b || !b->n ||
	    todo->arm_n == sizeof(todo->arm) / sizeof(todo->arm[0]))
		return;
	event = telling(b, &b->commands[b->n - 1]);
	if (event && complete(event)) {
		/* In an out-of-order queue an older one may be late. */
		event = NULL;
		for (unsigned int i = 0; i < b->n && !event; i++) {
			event = telling(b, &b->commands[i]);
			if (event && complete(event))
				event = NULL;
		}
	}
	if (!event) {
		/* It has completed since it was looked at, or a call is under way and looks. */
		if (batch_complete(b, todo))
			atomic_store(&reap_wanted, true);
		return;
	}
	layer_next.clRetainEvent(event);
	todo->arm[todo->arm_n].event = event;
	todo->arm[todo->arm_n++].lane = lane;
	atomic_store(&lane->armed, true);
}

/* A callback of OpenCL has news of that lane, or of all (NULL). */
static void look_from_callback(struct layer_lane *lane)
{
	struct layer_todo todo;

	if (making_calls) {
		/*
		 * It had completed before we asked: unlock_and_do looks again, instead of a
		 * recursion without end.
		 */
		atomic_store(&reap_wanted, true);
		return;
	}
	for (int i = 0; i < 2; i++) {
		if (!pthread_mutex_trylock(&lock)) {
			layer_todo_init(&todo);
			if (lane)
				run(lane, &todo);
			else
				run_all(&todo);
			unlock_and_do(&todo);
			return;
		}
		atomic_store(&reap_wanted, true);
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

/* What waits for nothing any more but for its own event, which has come. */
static void outside_ended(struct layer_todo *todo)
{
	for (struct layer_batch *b = unresolved, *after; b; b = after) {
		after = b->unext;
		if (!b->outside || !b->n || !complete(b->commands[0].event))
			continue;
		b->outside = false;
		if (--b->deps)
			continue;
		resolve(b, todo);
		after = unresolved; /* others may have gone with it */
	}
}

/*
 * Has an event of outside tell when it completes. One that cannot be told of counts as one that
 * completes by itself. Without the lock; the event is retained for the time of the call.
 */
static void watch_outside(cl_event event)
{
	struct layer_todo todo;

	if (!layer_next.clSetEventCallback(event, CL_COMPLETE, on_outside, NULL))
		return;
	pthread_mutex_lock(&lock);
	layer_todo_init(&todo);
	for (struct layer_batch *b = unresolved; b; b = b->unext)
		if (b->outside && b->n && b->commands[0].event == event) {
			b->outside = false;
			if (!--b->deps)
				resolve(b, &todo);
			break;
		}
	run_all(&todo);
	unlock_and_do(&todo);
}

/* ---- admission ---- */

static bool room(const struct layer_lane *lane, uint64_t est_ns)
{
	if (!lane->admitted)
		return true;
	if (lane->admitted >= ADMITTED_MAX)
		return false;
	if (lane->outstanding_ns + est_ns <= ahead_ns)
		return true;
	/*
	 * While no other task wants the engine, one long command may stand behind another, or the
	 * device would idle between.
	 */
	return !lane->contended && lane->admitted < 2;
}

static void contended(struct layer_lane *lane)
{
	lane->contended = true;
	lane->contended_at = rtxg_now_ns();
}

/*
 * The helper has to wait for the permit. The first one of all is waited for where no one else wants
 * the engine, too.
 */
static void missed(struct layer_lane *lane)
{
	lane->permit_missed = true;
	if (lane->launches)
		contended(lane);
	signal_helper(lane);
}

/* Takes the permit if it is there; never asks the host, which the helper does. */
static bool try_permit(struct layer_lane *lane)
{
	/*
	 * A time that has passed: not even a moment's wait if the permit is called back between the
	 * look and the launch.
	 */
	if (!rtx_gpu_revoked(lane->gpu->handle, lane->engine) &&
	    !rtx_gpu_launch_until(lane->gpu->handle, lane->engine, 1))
		return true;
	missed(lane);
	return false;
}

static void refuse_all(struct layer_lane *lane, struct layer_todo *todo)
{
	while (lane->ready_head) {
		struct layer_batch *b = lane->ready_head;

		list_remove(&lane->ready_head, &lane->ready_tail, b);
		if (b->gate)
			layer_events_add(&todo->refuse, b->gate);
		b->gate = NULL;
		/* It completes (with an error) without the engine: keep nothing of it. */
		b->lane = NULL;
		resolve(b, todo);
	}
}

/*
 * Others wait to hear when what is admitted has completed. Without that, it is noticed when the
 * program looks, or by the helper.
 */
static bool awaited(const struct layer_lane *lane)
{
	return lane->contended && rtx_gpu_awaited(lane->gpu->handle, lane->engine);
}

/* Notices completions and admits what can be admitted. Never waits. */
static void run(struct layer_lane *lane, struct layer_todo *todo)
{
	reap(lane, todo);
	while (lane->ready_head && !lane->closed && !lane->permit_missed) {
		if (!room(lane, lane->ready_head->est_ns)) {
			/*
			 * Ask now for the next permit, so that the host knows, when this one is
			 * drained, that we want to go on.
			 */
			if (rtx_gpu_revoked(lane->gpu->handle, lane->engine))
				missed(lane);
			break;
		}
		if (!try_permit(lane))
			break;
		admit(lane, lane->ready_head, todo);
	}
	report(lane);
	if (lane->closed)
		refuse_all(lane, todo);
	if (lane->admitted_head && (lane->ready_head || awaited(lane)))
		arm(lane, todo);
}

static void flush_admitted(struct layer_lane *lane, struct layer_todo *todo)
{
	for (struct layer_batch *b = lane->admitted_head; b; b = b->next) {
		cl_command_queue handle = b->queue ? atomic_load(&b->queue->handle) : NULL;
		bool have = !handle ||
			    todo->flush_n == sizeof(todo->flush) / sizeof(todo->flush[0]) ||
			    b->queue->refs == 0;

		for (unsigned int i = 0; i < todo->flush_n; i++)
			have |= todo->flush[i] == handle;
		if (have)
			continue;
		layer_next.clRetainCommandQueue(handle);
		todo->flush[todo->flush_n++] = handle;
	}
}

/*
 * Without the lock: so that no note (reap_wanted) is left to a thread that sleeps. `signals` is
 * what lane->signals was when there was nothing to do. ns: UINT64_MAX = until signalled.
 */
static void sleep_until_signal(struct layer_lane *lane, unsigned int signals, uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000ull),
			      .tv_nsec = (long)(ns % 1000000000ull) };

	atomic_store(&lane->sleeping, true);
	syscall(SYS_futex, &lane->signals, FUTEX_WAIT_PRIVATE, signals,
		ns == UINT64_MAX ? NULL : &t, NULL, 0);
	atomic_store(&lane->sleeping, false);
}

/*
 * What is known to be in the queue tells of its end from here. By a thread whose turn it is,
 * without the lock.
 */
static void put_marker(struct layer_queue *q, cl_command_queue handle)
{
	cl_event marker = NULL, old = NULL;
	struct layer_todo todo;

	if (layer_next.clEnqueueMarkerWithWaitList(handle, 0, NULL, &marker))
		marker = NULL;
	pthread_mutex_lock(&lock);
	layer_todo_init(&todo);
	if (marker) {
		old = q->marker;
		q->marker = marker;
		q->marker_number = ++q->entered;
	} else {
		/* cannot be asked: do not keep the engine for it */
		raise_done(q, q->bare, &todo);
	}
	run_all(&todo);
	unlock_and_do(&todo);
	if (old)
		layer_next.clReleaseEvent(old);
}

/* A call on the queue has returned. */
static void end_turn(struct layer_queue *q)
{
	if (--q->busy)
		return;
	atomic_store_explicit(&q->left, q->entered, memory_order_release);
	if (q->waiters)
		pthread_cond_broadcast(&entered);
}

/*
 * Puts a marker into the queue if there is something to tell of; a call under way does it itself.
 */
static void mark_queue(struct layer_queue *q)
{
	cl_command_queue handle;
	struct layer_todo todo;

	pthread_mutex_lock(&lock);
	q->marker_wanted = q->busy && untold(q);
	if (q->busy || !untold(q) || !q->refs) {
		layer_gate_unlock();
		return;
	}
	q->busy++;
	q->owner = pthread_self();
	handle = atomic_load(&q->handle);
	layer_next.clRetainCommandQueue(handle);
	layer_gate_unlock();
	put_marker(q, handle);
	pthread_mutex_lock(&lock);
	layer_todo_init(&todo);
	end_turn(q);
	unlock_and_do(&todo);
	layer_next.clReleaseCommandQueue(handle);
}

/*
 * The queues with something under way on that engine that nothing tells of. A call under way on one
 * is asked to put the marker when it leaves.
 */
static unsigned int untold_queues(const struct layer_lane *lane, struct layer_queue **queues)
{
	unsigned int n = 0;

	for (const struct layer_batch *b = lane->admitted_head; b && n < MARK_QUEUES; b = b->next) {
		bool have = !b->queue || !untold(b->queue);

		if (!have && b->queue->busy)
			have = b->queue->marker_wanted = true;
		for (unsigned int i = 0; i < n; i++)
			have |= queues[i] == b->queue;
		if (!have)
			queues[n++] = b->queue;
	}
	return n;
}

/*
 * One thread a lane that has ever been used: waits for permits, and for being told to give one
 * back. It is the only place of the layer that sleeps on behalf of rtxg.
 */
static void *helper(void *arg)
{
	struct layer_lane *lane = arg;
	rtx_gpu_t handle = lane->gpu->handle;
	uint64_t seen = 0, finished = 0, before;
	unsigned int quiet = 0, vain = 0;
	struct layer_queue *queues[MARK_QUEUES];
	struct layer_todo todo;

	pthread_mutex_lock(&lock);
	for (;;) {
		unsigned int signals = atomic_load(&lane->signals);
		int err;

		layer_todo_init(&todo);
		before = lane->finished;
		run(lane, &todo);
		if (lane->finished != before)
			vain = 0;
		else if (vain < POLL_SELDOM_AFTER)
			vain++;
		if (lane->admitted &&
		    (lane->contended || lane->permit_missed || lane->finished == finished ||
		     rtx_gpu_revoked(handle, lane->engine))) {
			unsigned int n = untold_queues(lane, queues);

			if (n) {
				unlock_and_do(&todo);
				for (unsigned int i = 0; i < n; i++)
					mark_queue(queues[i]);
				pthread_mutex_lock(&lock);
				continue;
			}
		}
		finished = lane->finished;
		/* What wanted the permit failed: the next one looks for it by itself. */
		if (!lane->ready_head)
			lane->permit_missed = false;
		if (lane->contended && rtxg_now_ns() - lane->contended_at > CONTENDED_NS)
			lane->contended = false;

		if (lane->ready_head && lane->permit_missed && !lane->closed) {
			bool drains = lane->admitted;

			flush_admitted(lane, &todo);
			unlock_and_do(&todo);
			/* The host waits for what is admitted, which may have to be looked at. */
			if (drains && atomic_load(&lane->untold)) {
				sleep_until_signal(lane, signals, POLL_NS);
				pthread_mutex_lock(&lock);
				continue;
			}
			err = rtx_gpu_launch_until(handle, lane->engine,
						   drains ? rtxg_now_ns() + DRAIN_NS : UINT64_MAX);
			pthread_mutex_lock(&lock);
			layer_todo_init(&todo);
			lane->permit_missed = false;
			if (err && err != -EINTR && err != -EAGAIN && err != -ETIMEDOUT) {
				if (!lane->closed)
					fprintf(stderr,
						"rtxg: %s: no permit for %s any more: %s; its "
						"commands fail\n",
						program_invocation_short_name, lane->gpu->name,
						strerror(-err));
				lane->closed = true;
			} else if (!err) {
				if (lane->launches || rtx_gpu_awaited(handle, lane->engine))
					contended(lane);
				if (lane->ready_head)
					admit(lane, lane->ready_head, &todo);
				else
					rtx_gpu_complete(handle, lane->engine, 0);
			} else {
				lane->permit_missed = true; /* -EINTR, -EAGAIN: again */
			}
			unlock_and_do(&todo);
			pthread_mutex_lock(&lock);
			continue;
		}

		if (lane->admitted && rtx_gpu_revoked(handle, lane->engine)) {
			/* Called back: have it drained and hear of it at once. */
			contended(lane);
			lane->current = NULL;
			flush_admitted(lane, &todo);
			arm(lane, &todo);
			unlock_and_do(&todo);
			sleep_until_signal(lane, signals, POLL_NS);
			pthread_mutex_lock(&lock);
			continue;
		}
		quiet = lane->launches == seen ? quiet + 1 : 0;
		seen = lane->launches;
		if (lane->admitted || lane->ready_head ||
		    (quiet < 8 && !rtx_gpu_revoked(handle, lane->engine))) {
			bool seldom = vain == POLL_SELDOM_AFTER && !quiet && !lane->contended;

			unlock_and_do(&todo);
			rtx_gpu_wait_revoked(handle, lane->engine,
					     rtxg_now_ns() + (seldom ? POLL_SELDOM_NS : POLL_NS));
		} else {
			lane->asleep = true;
			unlock_and_do(&todo);
			sleep_until_signal(lane, signals, UINT64_MAX);
			quiet = 0;
		}
		pthread_mutex_lock(&lock);
		lane->asleep = false;
	}
	return NULL;
}

static void read_environment(void)
{
	const char *text = getenv("RTXG_OPENCL_AHEAD_US");

	if (text && *text) {
		char *end;
		unsigned long us = strtoul(text, &end, 10);

		if (*end || us < 100 || us > 1000000)
			fprintf(stderr,
				"rtxg: RTXG_OPENCL_AHEAD_US=%s: 100 to 1000000 (microseconds) "
				"expected; using %llu\n",
				text, AHEAD_DEFAULT_NS / 1000);
		else
			ahead_ns = us * 1000ull;
	}
}

/* The first command of a lane: its helper begins, and those who look at all lanes see it. */
static void start_lane(struct layer_lane *lane)
{
	unsigned int n = atomic_load(&lanes_n);
	pthread_t thread;
	pthread_attr_t attr;
	sigset_t all, old;

	pthread_once(&once, read_environment);
	/* The program's signals are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	if (pthread_create(&thread, &attr, helper, lane)) {
		fprintf(stderr, "rtxg: %s: no thread for %s; its commands fail\n",
			program_invocation_short_name, lane->gpu->name);
		lane->closed = true;
	} else {
		pthread_setname_np(thread, "rtxg-gate");
	}
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	lane->helper_started = true;
	if (n < sizeof(lanes) / sizeof(lanes[0])) {
		lanes[n] = lane;
		atomic_store(&lanes_n, n + 1);
	}
}

/* ---- enqueueing ---- */

/*
 * A list without a count, or a count without a list: an error for the standard, and for some calls
 * of some implementations.
 */
static bool odd_list(cl_uint n, const cl_event *list)
{
	return !n != !list;
}

static void append_gate(struct layer_ticket *t, cl_event gate)
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

/* A batch that can take one more command. */
static bool takes(const struct layer_batch *b, uint64_t est_ns)
{
	return b->n + b->entering < BATCH_COMMANDS && b->est_ns + est_ns <= ahead_ns / 2;
}

/* The unresolved batches that a command depends on. */
struct layer_depends {
	struct layer_batch **at;
	unsigned int n, cap;
	struct layer_batch *few[32];
};

static void depends_add(struct layer_depends *d, struct layer_batch *b)
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

static void dependencies(struct layer_depends *d, struct layer_queue *q, enum layer_pass pass,
			 cl_uint n, const cl_event *list)
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
	for (struct layer_batch *b = unresolved; b; b = b->unext)
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

	if (!b || !takes(b, t->est_ns))
		return NULL;
	if (!deps->n) {
		if (lane->ready_head || lane->outstanding_ns + t->est_ns > ahead_ns ||
		    rtx_gpu_revoked(lane->gpu->handle, lane->engine))
			return NULL;
		lane->outstanding_ns += t->est_ns;
		b->in_order &= b->queue == q;
		t->bare &= b->queue == q;
	} else {
		if (!q->in_order || deps->n != 1 || deps->at[0] != b || b->lane != lane)
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
static void stand_in_queue(struct layer_ticket *t, struct layer_batch *b, enum layer_pass pass,
			   struct layer_todo *todo)
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
	run(b->lane, todo);
}

/* A new batch that depends on nothing: it runs at once, or waits for the permit only. */
static struct layer_batch *open_batch(struct layer_ticket *t, struct layer_queue *q,
				      struct layer_lane *lane, enum layer_pass pass,
				      struct layer_todo *todo)
{
	struct layer_batch *b = batch_new(lane, q);

	if (!b)
		return NULL;
	b->est_ns = t->est_ns;
	b->entering = 1;
	if (!lane->ready_head && !room(lane, t->est_ns))
		reap(lane, todo);
	if (!lane->ready_head && !lane->permit_missed && room(lane, t->est_ns) &&
	    try_permit(lane)) {
		admit(lane, b, todo);
		report(lane);
		return b;
	}
	report(lane);
	unresolved_add(b);
	make_ready(b);
	stand_in_queue(t, b, pass, todo);
	return b;
}

/* A new batch behind others; lane is NULL where the command occupies no engine. */
static struct layer_batch *block_behind(struct layer_ticket *t, struct layer_queue *q,
					struct layer_lane *lane, enum layer_pass pass,
					const struct layer_depends *deps, struct layer_todo *todo)
{
	struct layer_batch *b = batch_new(lane, q);

	if (!b)
		return NULL;
	b->est_ns = lane ? t->est_ns : 0;
	b->entering = 1;
	b->state = BLOCKED;
	unresolved_add(b);
	for (unsigned int i = 0; i < deps->n; i++)
		depend(b, deps->at[i]);
	stand_in_queue(t, b, pass, todo);
	return b;
}

/*
 * What this file takes for the order of a queue has to be the queue's: a command that runs under a
 * permit must not stand behind one that waits for a gate. So calls on one queue go in one by one;
 * no call waits for anything but the queue's own calls.
 */
static void wait_for_turn(struct layer_queue *q)
{
	while (q->busy && !pthread_equal(q->owner, pthread_self())) {
		q->waiters++;
		pthread_cond_wait(&entered, &lock);
		q->waiters--;
	}
}

/* May the layer do without an event, if the command is admitted? */
static bool may_be_bare(const struct layer_ticket *t, const struct layer_queue *q,
			const struct layer_lane *lane)
{
	return !t->program_event && !t->blocking && q->in_order && !q->times && q->marks &&
	       !q->busy && !lane->contended && !lane->ready_head && t->est_ns <= BARE_NS &&
	       lane->bare < BARE_ROW && lane->bare_ns + t->est_ns <= BARE_ROW_NS &&
	       !layer_device_in_part();
}

/* Gives a command its number, and says whether something has to tell of those before it first. */
static bool number(struct layer_ticket *t, struct layer_queue *q, struct layer_lane *lane,
		   const struct layer_batch *b)
{
	bool held = b->state != ADMITTED || t->gate;

	t->bare &= lane && !held;
	/* Called out of a call on the same queue, before or behind that call's command. */
	if (q->busy)
		return false;
	if (lane)
		t->number = ++q->entered;
	if (t->bare) {
		q->bare = t->number;
		lane->bare++;
		lane->bare_ns += t->est_ns;
	} else if (lane) {
		lane->bare = 0;
		lane->bare_ns = 0;
	}
	return held && untold(q);
}

/*
 * Holds back what enters the queue from here until the gate is opened. By a thread whose turn it
 * is, without the lock.
 */
static bool put_fence(const struct layer_queue *q, const cl_event *gate)
{
	cl_command_queue handle = atomic_load(&q->handle);

	return !(q->marks ? layer_next.clEnqueueBarrierWithWaitList(handle, 1, gate, NULL)
			  : layer_next.clEnqueueWaitForEvents(handle, 1, gate));
}

static void enter(struct layer_ticket *t, struct layer_queue *q, struct layer_lane *lane,
		  enum layer_pass pass)
{
	bool marker = false;
	struct layer_batch *b = NULL;
	struct layer_depends deps;
	struct layer_todo todo;

	pthread_mutex_lock(&lock);
	layer_todo_init(&todo);
	wait_for_turn(q);
	deps.at = deps.few;
	deps.n = 0;
	deps.cap = sizeof(deps.few) / sizeof(deps.few[0]);
	if (atomic_load_explicit(&unresolved_n, memory_order_relaxed))
		dependencies(&deps, q, pass, t->n, t->list);
	if (lane && lane->closed && !lane->admitted) {
		t->refused = true;
	} else if (lane) {
		if (!lane->helper_started)
			start_lane(lane);
		t->est_ns = layer_estimate(lane, t->key, t->units, ahead_ns);
		t->bare = may_be_bare(t, q, lane);
		b = join(t, q, lane, &deps);
		if (!b)
			t->bare &= !lane->admitted;
		if (!b)
			b = deps.n ? block_behind(t, q, lane, pass, &deps, &todo)
				   : open_batch(t, q, lane, pass, &todo);
	} else if (deps.n || pass == PASS_OUTSIDE) {
		b = block_behind(t, q, NULL, pass, &deps, &todo);
		if (b && pass == PASS_OUTSIDE) {
			b->outside = true;
			b->deps++;
		}
	}
	t->batch = b;
	if (b) {
		marker = number(t, q, lane, b);
		q->busy++;
		q->owner = pthread_self();
	}
	if (deps.at != deps.few)
		free(deps.at);
	unlock_and_do(&todo);
	if (marker)
		put_marker(q, atomic_load(&q->handle));
	if (t->fenced && !put_fence(q, &t->gate))
		t->refused = true;
}

/* What the layer knows of a queue. A forked child goes on with its parent's: it is another task. */
static struct layer_queue *queue_of(cl_command_queue handle)
{
	struct layer_queue *q = layer_queue_find(handle);

	if (q && q->generation != layer_generation()) {
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
	t->blocking = false;
	t->bare = false;
	t->number = 0;
	t->own = NULL;
	t->heap = NULL;
	t->gate = NULL;
	t->fenced = false;
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
	if (!q->gpu || !q->gpu->handle) {
		if (atomic_load(&unresolved_n))
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
	if (!q || (pass != PASS_OUTSIDE && !atomic_load(&unresolved_n)))
		return;
	enter(t, q, NULL, pass);
	if (t->batch && pass == PASS_OUTSIDE && !event)
		t->event = &t->own;
}

/*
 * An enqueue call that added nothing leaves a batch without commands, which must not wait for
 * anything.
 */
static void drop_if_empty(struct layer_batch *b, struct layer_todo *todo)
{
	if (b->n || b->entering || b->state == ADMITTED)
		return;
	if (b->gate)
		layer_events_add(&todo->open, b->gate); /* it may stand in the queue */
	b->gate = NULL;
	if (b->state == READY) {
		list_remove(&b->lane->ready_head, &b->lane->ready_tail, b);
		b->lane = NULL;
		resolve(b, todo);
	} else {
		b->lane = NULL; /* resolves, and goes, with what it depends on */
	}
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
	struct layer_todo todo;
	cl_event event = NULL, outside = NULL;

	if (t->gate)
		layer_next.clReleaseEvent(t->gate);
	free(t->heap);
	if (!b) {
		if (blocking && !err)
			layer_gate_reap();
		return err;
	}
	if (!err && t->event && *t->event) {
		event = *t->event;
		if (t->program_event)
			layer_next.clRetainEvent(event);
		if (blocking)
			layer_next.clRetainEvent(event); /* for waiting, below */
	}
	pthread_mutex_lock(&lock);
	layer_todo_init(&todo);
	lane = b->lane;
	b->entering--;
	end_turn(t->queue);
	mark = t->queue->marker_wanted && !t->queue->busy;
	noted = event || (t->bare && !err);
	if (noted && b->n == b->cap) {
		unsigned int cap = b->cap ? 2 * b->cap : 4;
		struct layer_command *more = realloc(b->commands, cap * sizeof(*more));

		if (more) {
			b->commands = more;
			b->cap = cap;
		}
	}
	if (event && !lane && b->state == ADMITTED) {
		/* Resolved while the call was under way: nothing to remember. */
		layer_events_add(&todo.release, event);
	} else if (noted && b->n < b->cap) {
		struct layer_command *c = &b->commands[b->n++];

		*c = (struct layer_command){ .event = event,
					     .number = t->number,
					     .key = t->key,
					     .units = t->units,
					     .est_ns = t->est_ns,
					     .times = t->queue->times };
		if (b->state != ADMITTED && t->program_event)
			c->mapped = layer_map_add(event, b);
	} else if (event) {
		layer_events_add(&todo.release, event);
	}
	if (!err)
		b->first_in = true;
	if (!lane) {
		if (b->state == ADMITTED) {
			if (!b->entering)
				batch_drop(b);
		} else if (b->outside && !b->n) {
			b->outside = false;
			if (!--b->deps)
				resolve(b, &todo);
		} else if (b->outside) {
			outside = event;
			layer_next.clRetainEvent(outside);
		} else if (err) {
			/*
			 * stays until what it depends on is resolved: later commands may already
			 * depend on it
			 */
		}
	} else {
		drop_if_empty(b, &todo);
		bool others = awaited(lane);

		if (err || others || lane->ready_head) {
			if (others)
				flush_admitted(lane, &todo);
			run(lane, &todo);
			if (!lane->admitted || lane->permit_missed)
				signal_helper(lane);
		}
	}
	unlock_and_do(&todo);
	if (mark)
		mark_queue(t->queue);
	if (outside) {
		watch_outside(outside);
		layer_next.clReleaseEvent(outside);
	}
	if (blocking && !err) {
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

/* ---- events ---- */

/*
 * An event that no command brings about: unresolved until it is set (a user event), or completes
 * (one of another API: outside).
 */
static bool remember_event(cl_event event, bool outside)
{
	struct layer_batch *b;
	bool known = false;

	pthread_mutex_lock(&lock);
	b = batch_new(NULL, NULL);
	if (b && !b->cap) {
		b->commands = malloc(sizeof(*b->commands));
		b->cap = b->commands ? 1 : 0;
	}
	if (b && b->cap && layer_map_add(event, b)) {
		/* its address must not become another event's while we know it */
		layer_next.clRetainEvent(event);
		b->commands[0] = (struct layer_command){ .event = event, .mapped = true };
		b->n = 1;
		b->deps = 1;
		b->refs = 1;
		b->outside = outside;
		unresolved_add(b);
		atomic_fetch_add(&events_n, 1);
		known = true;
	} else if (b) {
		batch_drop(b);
	}
	layer_gate_unlock();
	return known;
}

void layer_gate_user_event(cl_event event)
{
	remember_event(event, false);
}

void layer_gate_outside_event(cl_event event)
{
	layer_next.clRetainEvent(event);
	if (remember_event(event, true))
		watch_outside(event);
	layer_next.clReleaseEvent(event);
}

/*
 * The program takes or drops a reference. With the last one a user event goes that was never set,
 * and no command waits for: our own reference would keep it for ever.
 */
void layer_gate_event_refs(cl_event event, int change)
{
	struct layer_todo todo;
	struct layer_batch *b;

	if (!atomic_load(&events_n))
		return;
	pthread_mutex_lock(&lock);
	layer_todo_init(&todo);
	b = layer_map_find(event);
	if (b && !b->queue) {
		b->refs += (unsigned int)change;
		if (!b->refs && !b->dependents_n) {
			b->deps = 0;
			resolve(b, &todo);
		}
	}
	unlock_and_do(&todo);
}

void layer_gate_user_event_set(cl_event event)
{
	struct layer_todo todo;
	struct layer_batch *b;

	if (!atomic_load(&unresolved_n))
		return;
	pthread_mutex_lock(&lock);
	layer_todo_init(&todo);
	b = layer_map_find(event);
	if (b && !b->queue && b->deps) {
		b->deps = 0;
		resolve(b, &todo);
		run_all(&todo);
	}
	unlock_and_do(&todo);
}

/* The program has seen something complete: look what it was. */
void layer_gate_reap(void)
{
	layer_gate_finished(NULL, 0);
}

uint64_t layer_gate_newest(const struct layer_queue *q)
{
	return q ? atomic_load_explicit(&q->left, memory_order_acquire) : 0;
}

void layer_gate_finished(struct layer_queue *q, uint64_t number)
{
	struct layer_todo todo;

	if (!atomic_load_explicit(&admitted_n, memory_order_relaxed))
		return;
	pthread_mutex_lock(&lock);
	layer_todo_init(&todo);
	if (q)
		raise_done(q, number, &todo);
	do {
		more_done = false;
		for (unsigned int i = 0; i < atomic_load_explicit(&lanes_n, memory_order_relaxed);
		     i++)
			if (lanes[i]->admitted)
				run(lanes[i], &todo);
	} while (more_done);
	unlock_and_do(&todo);
}

void layer_gate_queue_ends(struct layer_queue *q)
{
	bool last;

	pthread_mutex_lock(&lock);
	last = q->refs == 1;
	layer_gate_unlock();
	if (last)
		mark_queue(q);
}

/* How many references to the event are the layer's own. */
unsigned int layer_gate_holds(cl_event event)
{
	unsigned int holds = 0;

	pthread_mutex_lock(&lock);
	for (struct layer_batch *b = unresolved; b; b = b->unext)
		for (unsigned int i = 0; i < b->n; i++)
			holds += b->commands[i].event == event;
	for (unsigned int l = 0; l < atomic_load(&lanes_n); l++)
		for (struct layer_batch *b = lanes[l]->admitted_head; b; b = b->next)
			for (unsigned int i = 0; i < b->n; i++)
				holds += b->commands[i].event == event;
	layer_gate_unlock();
	return holds;
}

/*
 * In a forked child. What the parent had under way is the parent's: the driver's threads do not
 * exist here and nothing of it will ever complete, so it is forgotten, not freed.
 */
void layer_gate_after_fork(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&entered, NULL);
	atomic_store(&reap_wanted, false);
	atomic_store(&outside_wanted, false);
	atomic_store(&events_n, 0);
	atomic_store(&unresolved_n, 0);
	atomic_store(&admitted_n, 0);
	atomic_store(&lanes_n, 0);
	unresolved = spare = NULL;
	layer_map_forget();
}
