/* SPDX-License-Identifier: MIT */
/*
 * fence.h - words that a device writes when launches have completed, so that a hand-over does not
 * wait for the finished program to run: see fence.c, and "fence" in rtxg/page.h.
 */
#ifndef RTXGD_FENCE_H
#define RTXGD_FENCE_H

#include "daemon.h"

/*
 * "fence": the word of one of the task's lanes lies in the memory that came with the request. fd is
 * the caller's to close. 0, or a negative errno with why.
 */
int fence_set(struct task *task, const struct request *r, int fd, char *why, size_t size);
/* "fence-event": fd becomes readable when the device may have written the word. As above. */
int fence_event(struct daemon *d, struct task *task, const struct request *r, int fd, char *why,
		size_t size);
/* Has the word reached value? False where there is none. */
bool fence_passed(const struct task *task, uint32_t engine, uint64_t value);
/* The task closes. */
void fence_drop(struct daemon *d, struct task *task);

/* What an event of a fence carries in the epoll set, in place of the task itself. */
static inline void *fence_mark(struct task *task)
{
	return (char *)task + 1;
}

static inline struct task *fence_marked(void *data)
{
	return (uintptr_t)data & 1u ? (struct task *)((char *)data - 1) : NULL;
}

#endif
