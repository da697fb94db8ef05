/* SPDX-License-Identifier: MIT */
/*
 * owner.h - attachments to the interrupt of the tests' accelerators, and at which priority its
 * threads run: what the tests of owners share.
 */
#ifndef RTXG_VM_OWNER_H
#define RTXG_VM_OWNER_H

#include "rtxg_vm.h"

#include <rtxg/irq.h>

struct watched {
	int fd;
	uint32_t id, irq;
	bool threaded;
};

/* The driver asks for its interrupt in another form. */
static inline int edu_form(int number, uint32_t form)
{
	int edu = open_edu(number), err = call(edu, RTXG_EDU_REQUEST, &form);

	close(edu);
	return err;
}

static inline struct rtxg_edu_stats edu_stats(int number)
{
	struct rtxg_edu_stats stats = {};
	int edu = open_edu(number);

	call(edu, RTXG_EDU_STATS, &stats);
	close(edu);
	return stats;
}

static inline int own(const struct watched *w, uint32_t mode, uint32_t priority, uint32_t flags,
		      pid_t pid)
{
	struct rtxg_irq_own request = { .size = sizeof(request),
					.id = w->id,
					.mode = mode,
					.priority = priority,
					.flags = flags,
					.pid = pid };

	return call(w->fd, RTXG_IOC_IRQ_OWN, &request);
}

static inline struct rtxg_irq_owner owner_of(const struct watched *w)
{
	struct rtxg_irq_owner answer = { .size = sizeof(answer), .id = w->id };
	int err = call(w->fd, RTXG_IOC_IRQ_OWNER, &answer);

	check(!err, "owner: %d", err);
	return answer;
}

/* The priority that the kernel says a thread has; 0: not SCHED_FIFO, -1: there is none. */
static inline int priority_of(pid_t tid)
{
	struct sched_param param;
	int policy = sched_getscheduler(tid);

	if (policy > 0)
		policy &= ~SCHED_RESET_ON_FORK;
	if (policy < 0 || sched_getparam(tid, &param))
		return -1;
	return policy == SCHED_FIFO ? param.sched_priority : 0;
}

#endif
