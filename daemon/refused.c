// SPDX-License-Identifier: MIT
/*
 * refused.c - which processes asked for a task and were refused. They may go on without one, so
 * people want to see them and the reason. A few of the latest are remembered, and of each user not
 * so many that another's are forgotten for them. No decision depends on it.
 */
#include <stdio.h>
#include <string.h>

#include "access.h"
#include "process.h"
#include "refused.h"
#include "report.h"

#define REFUSED_MAX	 64u
#define REFUSED_PER_USER 8u

static struct refused {
	pid_t pid;		  /* 0: free */
	uid_t uid, user;	  /* for whom it counts: see user.h */
	unsigned long long began; /* of the process: its number may be given out again */
	uint64_t at_ns;
	int error;
	char why[256];
} refused[REFUSED_MAX];

/* The place of that process, else a free one, else the oldest: of that user if it has its part. */
static struct refused *place(pid_t pid, uid_t user)
{
	struct refused *empty = NULL, *oldest = NULL, *own = NULL;
	uint32_t count = 0;

	for (uint32_t i = 0; i < REFUSED_MAX; i++) {
		struct refused *r = &refused[i];

		if (r->pid == pid)
			return r;
		if (!r->pid) {
			empty = r;
			continue;
		}
		if (!oldest || r->at_ns < oldest->at_ns)
			oldest = r;
		if (r->user != user)
			continue;
		count++;
		if (!own || r->at_ns < own->at_ns)
			own = r;
	}
	return count >= REFUSED_PER_USER ? own : empty ? empty : oldest;
}

void refused_note(const struct connection *c, int error, const char *why)
{
	struct refused *r = place(c->pid, c->user->uid);

	*r = (struct refused){ .pid = c->pid,
			       .uid = c->uid,
			       .user = c->user->uid,
			       .began = process_began(c->pid, c->pid),
			       .at_ns = rtxg_now_ns(),
			       .error = -error };
	snprintf(r->why, sizeof(r->why), "%s", why);
}

void refused_forget(pid_t pid)
{
	for (uint32_t i = 0; i < REFUSED_MAX; i++)
		if (refused[i].pid == pid)
			refused[i].pid = 0;
}

json_t *refused_list(const struct connection *viewer)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < REFUSED_MAX; i++) {
		struct refused *r = &refused[i];
		char comm[PROCESS_COMM];
		json_t *o;

		if (!r->pid || (viewer && !access_sees(viewer, r->uid)))
			continue;
		if (!process_is(r->pid, r->pid, r->began)) {
			r->pid = 0;
			continue;
		}
		process_comm(r->pid, comm);
		o = json_object();
		report_put(o, "pid", (uint64_t)r->pid);
		report_put(o, "uid", r->uid);
		report_put_text(o, "comm", comm);
		report_put_text(o, "error", strerrorname_np(r->error));
		report_put_text(o, "message", r->why);
		json_array_append_new(list, o);
	}
	return list;
}
