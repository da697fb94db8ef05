// SPDX-License-Identifier: MIT
/*
 * discard.c - gives away what users have open, too: it is read and closed in threads whose files
 * are not the daemon's (foreign.c). Each user has one thread at a time: no user's descriptors wait
 * for another's.
 *
 * A descriptor goes over a channel, and then has no number here. The thread has the last one: it
 * begins when the daemon has closed its own. What finds no room in the channel, or no thread, waits
 * here with its number.
 *
 * May not: read or close anything that may be the last of a user's.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "closer.h"
#include "daemon.h"
#include "discard.h"

#define THREADS_MAX 64u /* users with descriptors that do not close, at once */
/* A close takes microseconds; a thread on a busy machine some milliseconds until it runs. */
#define SLOW_NS 200000000ull
/*
 * A connection is closed by a process of its own if its user has so many descriptors here that do
 * not close, or so many in any case: those who are refused for them could connect until no memory
 * is left. It is not done where the thread is only busy.
 */
#define STUCK_MOST 64u
#define HEAP_MOST  512u
#define AGAIN_NS   (10 * NS_PER_MS)

struct reading {
	struct reading *next;
	void *owner; /* NULL: has gone */
	uid_t user;
	uint32_t number;
};

struct rubbish {
	struct rubbish *next;
	uid_t user;
	int fd;
	bool connection;
};

/* A thread. The first three are behind the lock. */
struct heap_of {
	uint32_t count;	   /* orders that are not done; 0: it is no user's */
	uint64_t since_ns; /* when it began with the one that it works on; 0: with none */
	bool leaves;
	bool used;
	uid_t user;
	int channel;
	struct watch watch;
	struct reading *first, **last; /* packets that it reads, in this order */
};

static pthread_mutex_t discard_lock = PTHREAD_MUTEX_INITIALIZER;
static struct heap_of discard_heaps[THREADS_MAX];
static uint32_t discard_count; /* of all heaps */
static uint32_t discard_idle;  /* threads */
static bool discard_tell;      /* the daemon waits for room */

static struct daemon *discard_daemon;
static void (*discard_read_done)(void *owner, const struct foreign_packet *packet, int fd);
static struct rubbish *discard_left;
static uint64_t discard_again_ns;

/* --- called in the threads -------------------------------------------------------------------- */

static void begins(uint32_t number)
{
	/* The daemon gives an order and closes its own descriptor under the lock. */
	pthread_mutex_lock(&discard_lock);
	discard_heaps[number].since_ns = rtxg_now_ns();
	pthread_mutex_unlock(&discard_lock);
}

static enum foreign_next done(uint32_t number)
{
	struct heap_of *heap = &discard_heaps[number];
	enum foreign_next next = FOREIGN_GO_ON;

	pthread_mutex_lock(&discard_lock);
	heap->since_ns = 0;
	heap->count--;
	__atomic_sub_fetch(&discard_count, 1, __ATOMIC_RELAXED);
	if (discard_tell)
		next = FOREIGN_TELL;
	if (!heap->count && discard_idle && !discard_tell) {
		/* One that waits is enough. */
		heap->leaves = true;
		next = FOREIGN_LEAVE;
	} else if (!heap->count) {
		discard_idle++;
	}
	discard_tell = false;
	pthread_mutex_unlock(&discard_lock);
	return next;
}

static const struct foreign_events discard_events = { .begins = begins, .done = done };

/* --- which thread it is ----------------------------------------------------------------------- */

/* With the lock, as all that follows. NULL: nothing of that user's is open. */
static struct heap_of *heap_of(uid_t user)
{
	for (struct heap_of *heap = discard_heaps; heap < discard_heaps + THREADS_MAX; heap++)
		if (heap->count && heap->user == user)
			return heap;
	return NULL;
}

/* Does one of them take long to close? */
static bool is_stuck(const struct heap_of *heap)
{
	return heap->since_ns && rtxg_now_ns() - heap->since_ns > SLOW_NS;
}

static void on_said(struct daemon *d, struct watch *watch, uint32_t events);

static struct heap_of *new_thread(void)
{
	struct heap_of *heap = discard_heaps;
	int channel;

	while (heap < discard_heaps + THREADS_MAX && heap->used)
		heap++;
	if (heap == discard_heaps + THREADS_MAX)
		return NULL;
	channel = foreign_thread((uint32_t)(heap - discard_heaps), &discard_events);
	if (channel < 0)
		return NULL;
	*heap = (struct heap_of){ .used = true,
				  .channel = channel,
				  .watch = { .ready = on_said, .data = heap },
				  .last = &heap->first };
	if (watch_on(discard_daemon, &heap->watch, channel, EPOLLIN)) {
		/* Without an order the thread ends with the channel. */
		close(channel);
		heap->used = false;
		return NULL;
	}
	discard_idle++;
	return heap;
}

/* The one that works for that user, or may begin to. */
static struct heap_of *heap_for(uid_t user)
{
	struct heap_of *heap = heap_of(user);

	for (uint32_t i = 0; !heap && i < THREADS_MAX; i++)
		if (discard_heaps[i].used && !discard_heaps[i].count && !discard_heaps[i].leaves)
			heap = &discard_heaps[i];
	return heap ? heap : new_thread();
}

static bool give(struct heap_of *heap, uid_t user, enum foreign_order order, int fd,
		 uint32_t number)
{
	int error = heap ? foreign_order(heap->channel, order, fd, number) : -EAGAIN;
	bool sent = !error;

	/* By its number, which stays the connection's until the thread says that it has it. */
	if (error == -ETOOMANYREFS && order != FOREIGN_READ)
		error = foreign_order_of(heap->channel, order, fd, number);
	if (error)
		return false;
	if (sent && order != FOREIGN_READ)
		close(fd);
	if (!heap->count) {
		heap->user = user;
		discard_idle--;
	}
	heap->count++;
	__atomic_add_fetch(&discard_count, 1, __ATOMIC_RELAXED);
	return true;
}

/* --- what waits here -------------------------------------------------------------------------- */

static bool dispose(uid_t user, int fd, bool connection)
{
	struct heap_of *heap = heap_for(user);
	bool many = connection && heap && heap->count > STUCK_MOST &&
		    (heap->count > HEAP_MOST || is_stuck(heap));

	if (many && closer_take(user, fd))
		return true;
	if (give(heap, user, connection ? FOREIGN_END : FOREIGN_CLOSE, fd, 0))
		return true;
	return connection && !many && closer_take(user, fd);
}

static void dispose_of_left(void)
{
	struct rubbish *one, **at = &discard_left;

	while ((one = *at)) {
		if (!dispose(one->user, one->fd, one->connection)) {
			at = &one->next;
			continue;
		}
		*at = one->next;
		free(one);
	}
	discard_tell = discard_left != NULL;
	discard_again_ns = rtxg_now_ns() + AGAIN_NS;
}

/* Without memory it stays open: to close it here could stop all users. */
static void leave(uid_t user, int fd, bool connection)
{
	struct rubbish *one = malloc(sizeof(*one));

	if (!one)
		return;
	*one = (struct rubbish){
		.next = discard_left, .user = user, .fd = fd, .connection = connection
	};
	discard_left = one;
	discard_tell = true;
}

bool discard(uid_t user, int fd, bool connection)
{
	bool gone;

	pthread_mutex_lock(&discard_lock);
	if (discard_left && rtxg_now_ns() >= discard_again_ns)
		dispose_of_left();
	gone = dispose(user, fd, connection);
	if (!gone)
		leave(user, fd, connection);
	pthread_mutex_unlock(&discard_lock);
	return gone;
}

/* --- what is read ----------------------------------------------------------------------------- */

struct reading *discard_read(uid_t user, int fd, void *owner)
{
	static uint32_t number;
	struct reading *reading = malloc(sizeof(*reading));
	struct heap_of *heap;

	if (!reading)
		return NULL;
	*reading = (struct reading){ .owner = owner,
				     .user = user,
				     .number = ++number ? number : ++number };
	pthread_mutex_lock(&discard_lock);
	heap = heap_for(user);
	if (give(heap, user, FOREIGN_READ, fd, number)) {
		*heap->last = reading;
		heap->last = &reading->next;
	} else {
		free(reading);
		reading = NULL;
	}
	pthread_mutex_unlock(&discard_lock);
	return reading;
}

void discard_forget(struct reading *ticket)
{
	if (ticket)
		ticket->owner = NULL;
}

static const struct foreign_packet lost_packet = { .news = FOREIGN_PACKET, .size = -EIO };

static void on_packet(struct heap_of *heap, const struct foreign_packet *packet, int fd)
{
	struct reading *reading;

	/* One that the thread had no memory to tell of is lost. */
	while ((reading = heap->first)) {
		bool this = reading->number == packet->number;

		heap->first = reading->next;
		if (!heap->first)
			heap->last = &heap->first;
		if (reading->owner)
			discard_read_done(reading->owner, this ? packet : &lost_packet,
					  this ? fd : -1);
		else if (this && fd >= 0)
			discard(reading->user, fd, false);
		free(reading);
		if (this)
			return;
	}
}

static void end_thread(struct daemon *d, struct heap_of *heap)
{
	watch_off(d, &heap->watch);
	close(heap->channel);
	/* What it had no memory to tell of: no packet has the number 0. */
	on_packet(heap, &lost_packet, -1);
	pthread_mutex_lock(&discard_lock);
	heap->used = false;
	pthread_mutex_unlock(&discard_lock);
}

static void on_said(struct daemon *d, struct watch *watch, uint32_t events)
{
	static struct foreign_packet packet;
	struct heap_of *heap = watch->data;
	int fd, error = foreign_hear(heap->channel, &packet, &fd);

	if (error == -EPIPE)
		end_thread(d, heap);
	if (error)
		return;
	if (packet.news == FOREIGN_PACKET) {
		on_packet(heap, &packet, fd);
		return;
	}
	pthread_mutex_lock(&discard_lock);
	if (packet.news == FOREIGN_ROOM)
		dispose_of_left();
	else if (!packet.size)
		close((int)packet.number);
	else
		leave(heap->user, (int)packet.number, true);
	pthread_mutex_unlock(&discard_lock);
}

int discard_start(struct daemon *d,
		  void (*read)(void *owner, const struct foreign_packet *packet, int fd))
{
	discard_daemon = d;
	discard_read_done = read;
	return foreign_start();
}

static uint32_t counted(uid_t user, bool stuck)
{
	struct heap_of *heap;
	uint32_t count;

	if (!__atomic_load_n(&discard_count, __ATOMIC_RELAXED))
		return 0;
	pthread_mutex_lock(&discard_lock);
	heap = heap_of(user);
	count = heap && (!stuck || is_stuck(heap)) ? heap->count : 0;
	pthread_mutex_unlock(&discard_lock);
	return count;
}

uint32_t discard_stuck(uid_t user)
{
	return counted(user, true);
}

uint32_t discard_pending(uid_t user)
{
	return counted(user, false);
}
