// SPDX-License-Identifier: MIT
/*
 * user.c - what the processes of each user id have here, what they may have, and whose request is
 * served next. A user is what the kernel says of a connection. May not know what a request asks
 * for, and reads no packet.
 *
 * The queue shares this process's own time among those who ask it, and no engine's. So it is the
 * daemon's and not the core's: the core knows no requests, and in the module a request takes the
 * time of the thread that makes it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "discard.h"
#include "subuid.h"
#include "user.h"

uid_t user_key(const struct daemon *d, uid_t uid)
{
	/* Others than its owner are refused by a user's own daemon, which may be in a container. */
	return d->system ? rtx_lib_subuid_account(uid, NULL) : uid;
}

/* As user_key(); owner: whose subordinate id it is, "" for no user's. */
static uid_t key_of(const struct daemon *d, uid_t id, int pidfd, char owner[RTX_LIB_SUBUID_OWNER])
{
	uid_t uid, maker;

	owner[0] = 0;
	if (!d->system)
		return id;
	uid = rtx_lib_subuid_account(id, owner);
	if (owner[0] || pidfd < 0)
		return uid;
	maker = rtx_lib_subuid_maker(pidfd, id);
	return maker == id ? uid : rtx_lib_subuid_account(maker, owner);
}

struct user *user_of(struct daemon *d, uid_t id, int pidfd)
{
	char owner[RTX_LIB_SUBUID_OWNER];
	uid_t uid = key_of(d, id, pidfd, owner);
	struct user *user;

	for (user = d->users; user && user->uid != uid; user = user->next)
		;
	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	user->trusted = uid == 0 || (!d->system && uid == geteuid());
	strcpy(user->owner, owner);
	user->virtual_ns = d->virtual_ns;
	user->next = d->users;
	d->users = user;
	return user;
}

struct user *user_get(struct daemon *d, uid_t id)
{
	return user_of(d, id, -1);
}

/* What a user has spent in advance is not forgotten when the connection ends. */
static bool counts(const struct user *user, uint64_t now)
{
	return user->connections || user->tasks || user->gpus || user->accounts || user->cgroups ||
	       user->ready_ns > now || user->held_ns > now || discard_pending(user->uid);
}

void user_put(struct daemon *d)
{
	uint64_t now = rtxg_now_ns();
	struct user *user;

	for (struct user **at = &d->users; (user = *at);) {
		if (counts(user, now)) {
			at = &user->next;
		} else {
			*at = user->next;
			free(user);
		}
	}
}

bool user_may(uint32_t have, uint32_t most, uint32_t used, uint32_t max, uint32_t reserve)
{
	uint32_t open = max > reserve ? max - reserve : 0;
	uint32_t left = used < open ? open - used : 0;

	return have < most && have < left;
}

/* --- whose turn it is ------------------------------------------------------------------------- */

void user_queue(struct daemon *d, struct connection *c)
{
	struct user *user = c->user;

	if (c->queued)
		return;
	c->queued = true;
	c->queue_next = NULL;
	if (user->last)
		user->last->queue_next = c;
	else
		user->first = c;
	user->last = c;
	d->queued++;
	/* A user who asked for nothing for long has saved up nothing. */
	if (user->first == c && user->virtual_ns < d->virtual_ns)
		user->virtual_ns = d->virtual_ns;
}

void user_queue_next_piece(struct daemon *d, struct connection *c)
{
	struct user *user = c->user;

	c->queued = true;
	c->queue_next = user->first;
	user->first = c;
	if (!user->last)
		user->last = c;
	d->queued++;
}

void user_unqueue(struct daemon *d, struct connection *c)
{
	struct user *user = c->user;
	struct connection *before = NULL;

	if (!c->queued)
		return;
	for (struct connection *one = user->first; one != c; one = one->queue_next)
		before = one;
	if (before)
		before->queue_next = c->queue_next;
	else
		user->first = c->queue_next;
	if (user->last == c)
		user->last = before;
	c->queued = false;
	d->queued--;
}

/* When the user may be served; RTXG_TIME_NEVER: something else has to happen first. */
static uint64_t ready_at(const struct user *user, uint64_t now)
{
	if (user->trusted)
		return 0;
	if (user->unread > USER_UNREAD || user->unread_bytes > USER_UNREAD_BYTES)
		return RTXG_TIME_NEVER;
	/* Threads close these; nothing tells when. */
	if (discard_pending(user->uid) > USER_FOREIGN)
		return now + 10 * NS_PER_MS;
	return user->ready_ns > user->held_ns ? user->ready_ns : user->held_ns;
}

struct connection *user_next(struct daemon *d, uint64_t now, uint64_t *when)
{
	struct user *best = NULL;

	*when = RTXG_TIME_NEVER;
	if (!d->queued)
		return NULL;
	for (struct user *user = d->users; user; user = user->next) {
		uint64_t at = user->first ? ready_at(user, now) : RTXG_TIME_NEVER;

		if (at > now) {
			if (at < *when)
				*when = at;
		} else if (user->first && (!best || user->virtual_ns < best->virtual_ns)) {
			best = user;
		}
	}
	if (!best)
		return NULL;
	*when = 0;
	d->virtual_ns = best->virtual_ns;
	return best->first;
}

void user_charge(struct daemon *d, struct user *user, uint64_t now, uint64_t cost_ns)
{
	uint64_t floor = now > USER_BURST_NS ? now - USER_BURST_NS : 0;

	user->cost_ns += cost_ns;
	user->virtual_ns += cost_ns;
	if (user->ready_ns < floor)
		user->ready_ns = floor;
	user->ready_ns += cost_ns * USER_DUTY;
}

uint64_t user_own_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void user_packet(struct user *user, uint64_t cost_ns)
{
	uint64_t now;

	if (!user || user->trusted || cost_ns < USER_PACKET_NS)
		return;
	now = rtxg_now_ns();
	if (user->held_ns < now)
		user->held_ns = now;
	user->held_ns += cost_ns * USER_PACKET_TIMES;
	if (cost_ns < USER_PACKET_SAY_NS)
		return;
	fprintf(stderr,
		"rtxgd: one call of the kernel took %.4g ms for user %u, for whose descriptors "
		"very many may wait; the next request is served in %.3g s\n",
		(double)cost_ns / 1e6, user->uid, (double)(user->held_ns - now) / 1e9);
}

/* --- for people ------------------------------------------------------------------------------- */

static json_t *use(uint64_t used, uint64_t max)
{
	return json_pack("{s:I, s:I}", "used", (json_int_t)used, "max", (json_int_t)max);
}

json_t *user_report(const struct daemon *d)
{
	json_t *list = json_array();

	for (const struct user *user = d->users; user; user = user->next) {
		bool free_of_quota = user->trusted;

		json_t *o = json_pack(
			"{s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "uid",
			(json_int_t)user->uid, "quota", !free_of_quota, "connections",
			use(user->connections, free_of_quota ? CONNECTIONS_MAX : USER_CONNECTIONS),
			"tasks", use(user->tasks, free_of_quota ? d->tasks_max : d->tasks_per_user),
			"gpus", use(user->gpus, free_of_quota ? GPUS_MAX : USER_GPUS), "accounts",
			use(user->accounts, free_of_quota ? ACCOUNTS_MAX : USER_ACCOUNTS),
			"cgroups", use(user->cgroups, free_of_quota ? BINDINGS_MAX : USER_CGROUPS),
			"unread_bytes", use(user->unread_bytes, USER_UNREAD_BYTES), "descriptors",
			use(discard_pending(user->uid), USER_FOREIGN), "requests",
			(json_int_t)user->requests, "cost_ns", (json_int_t)user->cost_ns);

		if (user->owner[0])
			json_object_set_new(o, "owner", json_string(user->owner));
		json_array_append_new(list, o);
	}
	return list;
}
