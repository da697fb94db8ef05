// SPDX-License-Identifier: MIT
/*
 * discard.c - closes descriptors that came from clients, in threads of their own. The last close of
 * a socket with SO_LINGER, or of a file that a program serves through FUSE, takes as long as its
 * maker likes. So does reading a message away, or closing a socket over it, if it carries such a
 * descriptor. Each user has one thread at a time: no user's descriptors wait for another's.
 *
 * May not: touch anything of the daemon's; run in the thread that hands permits over.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "closer.h"
#include "discard.h"
#include "rtxg_clock.h"

#define THREADS_MAX 64u /* users with descriptors that do not close, at once */
#define STACK_BYTES (64u << 10)
/* A close takes microseconds; a thread on a busy machine some milliseconds until it runs. */
#define SLOW_NS 200000000ull
/*
 * A connection is closed by a process of its own if its user has so many descriptors here that do
 * not close, or so many in any case: those who are refused for them could connect until no number
 * is left. What was said last may be lost then, so it is not done where the thread is only busy.
 */
#define STUCK_MOST 64u
#define HEAP_MOST  512u

struct rubbish {
	struct rubbish *next;
	int fd;
	bool connection;
};

struct heap_of {
	struct heap_of *next;
	uid_t user;
	uint32_t count;	   /* also what a thread is closing now */
	uint64_t since_ns; /* when it began with that one; 0: it has not */
	struct rubbish *first, **last;
	bool taken; /* by a thread */
};

static pthread_mutex_t discard_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t discard_more = PTHREAD_COND_INITIALIZER;
static struct heap_of *discard_heaps;
static uint32_t discard_threads, discard_coming, discard_idle, discard_count;

/* What was said last can be read by the other side only if nothing lies unread here. */
static void drain(int fd)
{
	char nothing;

	shutdown(fd, SHUT_RD);
	while (recv(fd, &nothing, sizeof(nothing), MSG_DONTWAIT | MSG_TRUNC) > 0)
		;
}

/* With the lock: a heap that no thread works on and that has something to close. */
static struct heap_of *next_heap(void)
{
	struct heap_of *heap;

	for (heap = discard_heaps; heap && (heap->taken || !heap->first); heap = heap->next)
		;
	return heap;
}

static void forget(struct heap_of *heap)
{
	struct heap_of **at = &discard_heaps;

	while (*at != heap)
		at = &(*at)->next;
	*at = heap->next;
	free(heap);
}

static void work_on(struct heap_of *heap)
{
	struct rubbish *one;

	while ((one = heap->first)) {
		heap->first = one->next;
		if (!heap->first)
			heap->last = &heap->first;
		heap->since_ns = rtxg_now_ns();
		pthread_mutex_unlock(&discard_lock);
		if (one->connection)
			drain(one->fd);
		close(one->fd);
		free(one);
		pthread_mutex_lock(&discard_lock);
		heap->count--;
		heap->since_ns = 0;
		__atomic_sub_fetch(&discard_count, 1, __ATOMIC_RELAXED);
	}
	forget(heap);
}

static void need_worker(void);

static void *worker(void *unused)
{
	struct heap_of *heap;

	pthread_mutex_lock(&discard_lock);
	discard_coming--;
	for (;;) {
		heap = next_heap();
		if (heap) {
			heap->taken = true;
			/* This one may take for ever: the next has a thread of its own. */
			if (next_heap())
				need_worker();
			work_on(heap);
		} else if (discard_idle) {
			break; /* one that waits is enough */
		} else {
			discard_idle++;
			pthread_cond_wait(&discard_more, &discard_lock);
			discard_idle--;
		}
	}
	discard_threads--;
	pthread_mutex_unlock(&discard_lock);
	return NULL;
}

/* With the lock. Where no thread can be made now, the next call tries again. */
static void need_worker(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	if (discard_idle) {
		pthread_cond_signal(&discard_more);
		return;
	}
	/* The one that comes sees all that there is by then, and calls the next itself. */
	if (discard_coming)
		return;
	if (discard_threads >= THREADS_MAX || pthread_attr_init(&attributes))
		return;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	if (!pthread_create(&thread, &attributes, worker, NULL)) {
		discard_threads++;
		discard_coming++;
	}
	pthread_attr_destroy(&attributes);
}

static struct heap_of *heap_of(uid_t user)
{
	struct heap_of *heap;

	for (heap = discard_heaps; heap && heap->user != user; heap = heap->next)
		;
	return heap;
}

/* With the lock: does one of them take long to close? */
static bool is_stuck(const struct heap_of *heap)
{
	return heap->since_ns && rtxg_now_ns() - heap->since_ns > SLOW_NS;
}

bool discard(uid_t user, int fd, bool connection)
{
	struct rubbish *one = malloc(sizeof(*one));
	struct heap_of *heap;
	bool many;

	pthread_mutex_lock(&discard_lock);
	heap = heap_of(user);
	many = connection && heap && heap->count > STUCK_MOST &&
	       (heap->count > HEAP_MOST || is_stuck(heap));
	if (many && closer_take(fd)) {
		pthread_mutex_unlock(&discard_lock);
		free(one);
		return true;
	}
	if (!heap && one) {
		heap = calloc(1, sizeof(*heap));
		if (heap) {
			heap->user = user;
			heap->last = &heap->first;
			heap->next = discard_heaps;
			discard_heaps = heap;
		}
	}
	if (heap && one) {
		*one = (struct rubbish){ .fd = fd, .connection = connection };
		*heap->last = one;
		heap->last = &one->next;
		heap->count++;
		__atomic_add_fetch(&discard_count, 1, __ATOMIC_RELAXED);
		if (!heap->taken)
			need_worker();
		one = NULL;
		fd = -1;
	}
	pthread_mutex_unlock(&discard_lock);
	free(one);
	/* Without memory the descriptor stays open: to close it here could stop all users. */
	return !many;
}

uint32_t discard_stuck(uid_t user)
{
	struct heap_of *heap;
	uint32_t count = 0;

	if (!__atomic_load_n(&discard_count, __ATOMIC_RELAXED))
		return 0;
	pthread_mutex_lock(&discard_lock);
	heap = heap_of(user);
	if (heap && is_stuck(heap))
		count = heap->count;
	pthread_mutex_unlock(&discard_lock);
	return count;
}

uint32_t discard_pending(uid_t user)
{
	struct heap_of *heap;
	uint32_t count;

	if (!__atomic_load_n(&discard_count, __ATOMIC_RELAXED))
		return 0;
	pthread_mutex_lock(&discard_lock);
	heap = heap_of(user);
	count = heap ? heap->count : 0;
	pthread_mutex_unlock(&discard_lock);
	return count;
}
