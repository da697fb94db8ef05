/* SPDX-License-Identifier: MIT */
/*
 * watch.h - descriptors that come and go are waited for in the daemon's own epoll set: see watch.c.
 */
#ifndef RTXGD_WATCH_H
#define RTXGD_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct daemon;

struct watch {
	/* events: as of epoll_wait(). May end any watch, this one too. */
	void (*ready)(struct daemon *d, struct watch *watch, uint32_t events);
	void *data;  /* the owner's */
	bool urgent; /* is dealt with before what is not */
	/* watch.c's own */
	int fd;
	bool on;
	uint32_t told; /* events that were told and not dealt with; 0: it is in no queue */
	struct watch *next;
};

/* Waits for events (EPOLLIN, ...) of fd. The watch was off, or is zero. 0 or a negative errno. */
int watch_on(struct daemon *d, struct watch *watch, int fd, uint32_t events);
/* Waits no more; what was told and not dealt with is forgotten. */
void watch_off(struct daemon *d, struct watch *watch);

/* What an epoll event of a watch carries, and the watch of such an event; NULL: another's event. */
static inline void *watch_mark(struct watch *watch)
{
	return (char *)watch + 2;
}

static inline struct watch *watch_marked(void *data)
{
	return (uintptr_t)data & 2u ? (struct watch *)(void *)((char *)data - 2) : NULL;
}

/* epoll_wait() has told of it: watch_deal() will deal with it. */
void watch_tell(struct daemon *d, struct watch *watch, uint32_t events);
/* Deals with what was told, of so many at most. False: nothing is left. */
bool watch_deal(struct daemon *d, unsigned int most);

#endif
