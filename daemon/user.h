/* SPDX-License-Identifier: MIT */
/* user.h - what the processes of each user id have here, and what they may have: see user.c. */
#ifndef RTXGD_USER_H
#define RTXGD_USER_H

#include "daemon.h"

#define USER_CONNECTIONS    1152u	  /* at once; a task needs one */
#define USER_GPUS	    12u		  /* names that its tasks were the first to use */
#define USER_ACCOUNTS	    256u	  /* vGPUs on GPUs that its tasks were the first in */
#define USER_UNREAD_BYTES   (16ull << 20) /* in long replies that its clients have not read */
#define USER_UNREAD	    64u		  /* such replies */
#define USER_FOREIGN	    64u /* descriptors that its clients sent and that do not close */
#define USER_CGROUPS	    64u /* bound to vGPUs */
#define USER_DUTY	    4u	/* its requests take one part in so many of a processor */
#define USER_BURST_NS	    (50 * NS_PER_MS)
#define USER_PACKET_NS	    100000u /* no packet takes the kernel so long */
#define USER_PACKET_SAY_NS  (10 * NS_PER_MS)
#define USER_PACKET_TIMES   100u
#define USER_UNTOLD_NS	    NS_PER_S /* who is to wait longer is refused without a word */
#define RESERVE_CONNECTIONS 128u     /* for administrators, of each of these */
#define RESERVE_TASKS	    256u
#define RESERVE_GPUS	    4u
#define RESERVE_ACCOUNTS    128u
#define RESERVE_CGROUPS	    256u

/*
 * The id under which a user id counts: all that are subordinate to one user count as one
 * (lib/subuid.c). It names the account, and the thread that closes this user's descriptors.
 */
uid_t user_key(const struct daemon *d, uid_t uid);
/* The account of a user id; makes it. NULL: no memory. */
struct user *user_get(struct daemon *d, uid_t uid);
/*
 * The same for an id that a process has: one in a user namespace that a user made counts as that
 * user, unless /etc/subuid says whose the id is. pidfd: of the process, -1: none.
 */
struct user *user_of(struct daemon *d, uid_t uid, int pidfd);
/* Frees the accounts of which nothing counts any more. */
void user_put(struct daemon *d);

/*
 * May an ordinary user, who has `have` of something, take one more? The user has at most `most`,
 * leaves `reserve` of all `max` to administrators, and never has more than is left after that:
 * however many users take what they can, the next one still gets a part.
 */
bool user_may(uint32_t have, uint32_t most, uint32_t used, uint32_t max, uint32_t reserve);

/*
 * Requests wait here, by user, and are served one at a time: that of the user whose requests have
 * cost least so far.
 */
void user_queue(struct daemon *d, struct connection *c);
/*
 * A piece of its request was served: the next one comes before all other requests of its user, so
 * that a user has one such request at a time.
 */
void user_queue_next_piece(struct daemon *d, struct connection *c);
/* The connection ends. */
void user_unqueue(struct daemon *d, struct connection *c);
/* The connection whose request is to be served now; NULL: none, before *when. */
struct connection *user_next(struct daemon *d, uint64_t now, uint64_t *when);
/* A request, or a piece of one, has taken so long. */
void user_charge(struct daemon *d, struct user *user, uint64_t now, uint64_t cost_ns);

/*
 * The kernel has worked for so long, in this thread, to take a packet of the user's, or to bring
 * one. It tells every waiter of the socket, and there may be as many as a user has descriptors and
 * epoll sets for. The same goes for the beginning and the end of our own waiting for what the user
 * has as well: a process, a doorbell, an event. Each takes microseconds; for one that takes
 * USER_PACKET_NS and more, the user's next request is served after USER_PACKET_TIMES as long.
 */
void user_packet(struct user *user, uint64_t cost_ns);
/* CPU time of this thread, ns. */
uint64_t user_own_ns(void);

/* Every user with something open: {"uid", "connections", ...}. */
json_t *user_report(const struct daemon *d);

#endif
