// SPDX-License-Identifier: MIT
/*
 * watch.c - waits for descriptors that come and go with what users do, in the epoll set of the
 * doorbells. To put a descriptor into a set that another set waits for, as this one waits for the
 * event loop's, the kernel takes a lock of the whole machine (epnested_mutex in fs/eventpoll.c),
 * which any user's program may keep busy. It takes none for a set for which no other waits.
 *
 * May not: deal with anything while doorbells are looked at.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "daemon.h"
#include "watch.h"

int watch_on(struct daemon *d, struct watch *watch, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch_mark(watch) };

	if (epoll_ctl(d->fast, EPOLL_CTL_ADD, fd, &event))
		return -errno;
	watch->fd = fd;
	watch->on = true;
	return 0;
}

static void take_out(struct daemon *d, struct watch *watch)
{
	struct watch *before = NULL;

	for (struct watch *one = d->told; one != watch; one = one->next)
		before = one;
	if (before)
		before->next = watch->next;
	else
		d->told = watch->next;
	if (d->told_last == watch)
		d->told_last = before;
	watch->told = 0;
}

void watch_off(struct daemon *d, struct watch *watch)
{
	if (watch->on)
		epoll_ctl(d->fast, EPOLL_CTL_DEL, watch->fd, NULL);
	watch->on = false;
	if (watch->told)
		take_out(d, watch);
}

void watch_tell(struct daemon *d, struct watch *watch, uint32_t events)
{
	bool queued = watch->told != 0;

	watch->told |= events;
	if (queued)
		return;
	watch->next = NULL;
	if (watch->urgent) {
		watch->next = d->told;
		d->told = watch;
	} else if (d->told_last) {
		d->told_last->next = watch;
	} else {
		d->told = watch;
	}
	if (!watch->next)
		d->told_last = watch;
}

bool watch_deal(struct daemon *d, unsigned int most)
{
	for (; d->told && most; most--) {
		struct watch *watch = d->told;
		uint32_t events = watch->told;

		take_out(d, watch);
		watch->ready(d, watch, events);
	}
	return d->told != NULL;
}
