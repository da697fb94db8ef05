/* SPDX-License-Identifier: MIT */
/*
 * foreign.h - threads with files of their own, in which descriptors of users are opened and closed:
 * see foreign.c.
 */
#ifndef RTXGD_FOREIGN_H
#define RTXGD_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rtxg/control.h"

enum foreign_order {
	FOREIGN_CLOSE, /* a descriptor of ours, or one that a user may have, too */
	FOREIGN_END,   /* a connection, over which descriptors may lie unread */
	FOREIGN_READ,  /* one packet of a connection, which carries descriptors */
};

enum foreign_news {
	FOREIGN_ROOM,  /* for more orders */
	FOREIGN_TAKEN, /* the thread has one of its own of `number`, or -errno is in `size` */
	FOREIGN_PACKET,
};

/* What a thread says. All but the first three are of a packet that it has read. */
struct foreign_packet {
	uint32_t news;
	uint32_t number;      /* of a descriptor of ours; or that of the order to read */
	int32_t size;	      /* of the text; or a negative errno */
	uint32_t flags;	      /* of recvmsg(2) */
	uint32_t descriptors; /* that came */
	uint32_t given;	      /* 1: one of them, whose end is the kernel's alone, comes along */
	char text[RTXG_REQUEST_MAX + 1];
};

enum foreign_next { FOREIGN_GO_ON, FOREIGN_TELL, FOREIGN_LEAVE };

/* Called in the thread of that number. They may not wait. */
struct foreign_events {
	void (*begins)(uint32_t number);	    /* with an order */
	enum foreign_next (*done)(uint32_t number); /* with it */
};

/* Before a user's descriptor can be there. 0, or an errno. */
int foreign_start(void);
/*
 * Starts a thread. The descriptor of ours that it gets its orders from, and sends packets to; it
 * ends after the thread. Or a negative errno.
 */
int foreign_thread(uint32_t number, const struct foreign_events *events);
/*
 * Sends an order, and the thread a copy of fd. It never waits. number: comes back with the packet.
 * 0, or a negative errno. -ETOOMANYREFS: no descriptor, or not this one, can be on its way to a
 * process now. Then `foreign_order_of` says its number, and the thread takes it by itself: it stays
 * open until FOREIGN_TAKEN comes. FOREIGN_READ has no such news.
 */
int foreign_order(int channel, enum foreign_order order, int fd, uint32_t number);
int foreign_order_of(int channel, enum foreign_order order, int fd, uint32_t number);
/*
 * What has come from the thread; *fd: what is given, if there was a number for it, else -1. 0, or a
 * negative errno: -EPIPE when the thread has ended.
 */
int foreign_hear(int channel, struct foreign_packet *packet, int *fd);

#endif
