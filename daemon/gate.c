// SPDX-License-Identifier: MIT
/*
 * gate.c - the lever that works with every GPU API and without privilege: a launch waits for its
 * permit word in the shared page. Writes permits and wakes; may not read them back, and decides
 * nothing.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gate.h"

static void wake(uint32_t *permit)
{
	syscall(SYS_futex, permit, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void gate_grant(struct task *task, uint32_t engine, uint32_t flags, bool anew)
{
	struct rtxg_lane *p = &task->page->lanes[engine];
	struct lane *lane = &task->lanes[engine];
	uint32_t permit = RTXG_PERMIT_GRANTED;

	/*
	 * Without anew only the flags of a lease change, whose word no launch uses up: the core
	 * never grants to the holder of a one-shot permit, so nothing that a launch has taken is
	 * given back here.
	 */
	if (anew)
		lane->sequence++;
	if (flags & RTXG_GRANT_ONESHOT)
		permit |= RTXG_PERMIT_ONESHOT;
	if (flags & RTXG_GRANT_REPORT)
		permit |= RTXG_PERMIT_REPORT;
	page_store(&p->permit, lane->sequence << RTXG_PERMIT_SEQ_SHIFT | permit);
	/* Whoever sets want afterwards sees the permit: both sides are sequentially consistent. */
	if (anew && page_load(&p->want))
		wake(&p->permit);
}

static void gate_revoke(struct task *task, uint32_t engine)
{
	struct rtxg_lane *p = &task->page->lanes[engine];

	page_store(&p->permit, task->lanes[engine].sequence << RTXG_PERMIT_SEQ_SHIFT);
	if (page_load(&p->watch))
		wake(&p->permit);
}

/* A gate has no time slices and stops nothing in mid-flight. */
static void gate_slice(struct task *task, uint64_t slice_ns)
{
}

static void gate_nothing(struct task *task)
{
}

const struct lever lever_gate = {
	.name = "gate",
	.grant = gate_grant,
	.revoke = gate_revoke,
	.slice = gate_slice,
	.suspend = gate_nothing,
	.resume = gate_nothing,
};
