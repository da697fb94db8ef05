/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * owner.h - threads of interrupts that run at their owner's priority: see owner.c.
 */
#ifndef RTXG_KMOD_OWNER_H
#define RTXG_KMOD_OWNER_H

#include <linux/types.h>

#include "rtxg_cpu_serve.h"

struct rtxg_hook;
struct rtxg_irq_owner;
struct rtxg_owned;
struct task_struct;

/* An engine of a GPU whose holder is the owner, or none (gpu < 0). */
struct rtxg_owned_for {
	int gpu;
	u32 engine;
	struct task_struct
		*named; /* an owner by name, with a reference that is taken over; or NULL */
};

/*
 * From now on the hook's threads run by the rule; with tasklets, its tasklets in one of ours, too.
 * The threads' references are taken over; they may be NULL. In process context. ERR_PTR: nothing is
 * changed, and no reference taken over.
 */
struct rtxg_owned *rtxg_owned_begin(const struct rtxg_hook *hook, struct task_struct *threads[2],
				    const struct rtxg_serve_rule *rule,
				    const struct rtxg_owned_for *who, bool tasklets);
/* Its owner is the holder of that engine from now on; gpu < 0: of none. */
void rtxg_owned_bind(struct rtxg_owned *owned, int gpu, u32 engine);
/* Gives the threads back what they had, unless they are gone. None may be in the calls below. */
void rtxg_owned_end(struct rtxg_owned *owned, bool gone);
/* An interrupt has come, or a thread begins or ends: in any context. */
void rtxg_owned_look(struct rtxg_owned *owned);
void rtxg_owned_runs(struct rtxg_owned *owned);
/* In process context. */
void rtxg_owned_tell(struct rtxg_owned *owned, struct rtxg_irq_owner *answer);

int rtxg_owned_init(void);
void rtxg_owned_exit(void);

#endif
