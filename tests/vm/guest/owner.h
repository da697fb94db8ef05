/* SPDX-License-Identifier: MIT */
/*
 * owner.h - attachments to the interrupt of the tests' accelerators, and at which priority its
 * threads run: what the tests of owners share.
 */
#ifndef RTXG_VM_OWNER_H
#define RTXG_VM_OWNER_H

#include <dirent.h>

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

static inline struct watched watch_edu(bool bound)
{
	struct rtxg_irq_attach attach = { .size = sizeof(attach),
					  .flags = RTXG_IRQ_F_BY_NAME | RTXG_IRQ_F_AFTER,
					  .name = "rtxg_edu0" };
	struct rtxg_irq_bind bind = { .size = sizeof(bind) };
	struct watched w = { .fd = open_rtxg() };

	check(!call(w.fd, RTXG_IOC_IRQ_ATTACH, &attach), "attach");
	w.id = bind.id = attach.id;
	w.irq = attach.irq;
	check(!bound || !call(w.fd, RTXG_IOC_IRQ_BIND, &bind), "bind");
	return w;
}

/* The driver's threads now: 0, 1 or 2 of them. */
static inline int irq_threads(pid_t tids[2])
{
	char name[300], line[64];
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	int count = 0;

	while (folder && count < 2 && (entry = readdir(folder))) {
		if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
			continue;
		snprintf(name, sizeof(name), "/proc/%s/comm", entry->d_name);
		/* irq/25-rtxg_edu0, and of the second irq/25-s-rtxg_ed */
		if (read_text(name, line, sizeof(line)) && !strncmp(line, "irq/", 4) &&
		    (strstr(line, "-rtxg_edu0") || strstr(line, "-s-rtxg_edu")))
			tids[count++] = atoi(entry->d_name);
	}
	if (folder)
		closedir(folder);
	return count;
}

/* What is set follows at once, but it is another thread that does it. */
static inline void all_at(const pid_t *tids, int count, int priority, const char *when)
{
	for (int i = 0; i < count; i++) {
		for (int n = 0; n < 60000 && priority_of(tids[i]) != priority; n++)
			sleep_ns(1000000);
		check(priority_of(tids[i]) == priority, "%s: thread %d has %d instead of %d", when,
		      i, priority_of(tids[i]), priority);
	}
}

#endif
