/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * hook.h - handlers of ours in the place of other drivers' handlers: see hook.c.
 */
#ifndef RTXG_KMOD_HOOK_H
#define RTXG_KMOD_HOOK_H

#include <linux/interrupt.h>
#include <linux/list.h>
#include <linux/types.h>

#include <rtxg/irq.h>

/* The parts of a driver's handler, in the order in which an interrupt passes through them. */
enum rtxg_stage {
	RTXG_STAGE_TOP,
	RTXG_STAGE_THREAD, /* the driver's thread, or the handler where the kernel forces threads */
	RTXG_STAGE_SECOND, /* the driver's thread, where the handler was forced into one */
	RTXG_STAGES,
	RTXG_STAGE_TASKLET = RTXG_STAGES, /* no part of the handler's: for the log (events.h) */
};

/*
 * One intercepted action of one interrupt. Each stage's counters are written by that stage only,
 * which the kernel never runs twice at a time.
 */
struct rtxg_hook {
	struct hlist_node node;
	unsigned int irq;
	bool traced;
	bool orphan;
	bool gone;		  /* the driver has freed the interrupt: this hook is out of use */
	bool owned;		  /* the user has set its threads' priority */
	struct irqaction *action; /* an address to look for, not to follow */
	void *dev_id;
	irq_handler_t handler;
	irq_handler_t thread_fn;  /* NULL: there was none */
	irq_handler_t second_fn;  /* NULL: there was none */
	struct list_head watches; /* the user's, by RCU */
	char name[RTXG_IRQ_NAME];

	u64 entries, exits, handled;
	u64 handler_ns, handler_min_ns, handler_max_ns;
	struct rtxg_hook_thread {
		bool inside;			/* it uses the hook */
		const struct task_struct *runs; /* the driver's function, in this thread */
		u64 entries, exits, ns, max_ns;
		u64 covers; /* entries of the interrupt before the last run that has ended began */
	} threads[2];
	u64 entered_ns; /* traced: when the handler began */
};

/*
 * What is done at an interrupt. Under RCU; top: interrupts are off, else from the driver's thread.
 */
struct rtxg_hook_user {
	/* before the driver's top half */
	void (*enters)(struct rtxg_hook *hook);
	/* before a thread of the driver's runs for what came until now */
	void (*begins)(struct rtxg_hook *hook, enum rtxg_stage stage);
	/*
	 * after a stage that no other follows, which began when so many interrupts had entered; it
	 * served them and may have served later ones, or had nothing to serve (IRQ_NONE)
	 */
	void (*ends)(struct rtxg_hook *hook, enum rtxg_stage stage, irqreturn_t result, u64 covers);
	/* the driver frees the interrupt; in a process, which may not sleep here */
	void (*goes)(struct rtxg_hook *hook);
};

/* All that follow are called under rtxg_hook_lock, but for init and exit. */
extern struct mutex rtxg_hook_lock;

/* A hook without watches, to be given to rtxg_hook_get(); NULL: no memory. */
struct rtxg_hook *rtxg_hook_new(void);
/*
 * Finds the interrupt that the request names and hooks it, or finds the hook that is there. Answers
 * irq, name and threaded in the request. Takes *spare and sets it to NULL if it makes a hook.
 * -ENOENT, -EBUSY, -EOPNOTSUPP.
 */
struct rtxg_hook *rtxg_hook_get(struct rtxg_irq_attach *attach, struct rtxg_hook **spare);
/*
 * Takes a hook without watches out. -EBUSY: another handler stands over ours; the hook stays, and
 * is tried again at each rtxg_hook_get().
 */
int rtxg_hook_drop(struct rtxg_hook *hook);

/*
 * The driver's threads, with references; how many. A second one only where the kernel forces
 * threads.
 */
unsigned int rtxg_hook_threads(struct rtxg_hook *hook, struct task_struct *threads[2]);

/* Needs no lock: whether what runs here now is the driver's handler, or its thread. Under RCU. */
bool rtxg_hook_runs(const struct rtxg_hook *hook);
/* Needs no lock: whether the driver has freed the interrupt. */
bool rtxg_hook_gone(struct rtxg_hook *hook);
/* While the module loads. */
void rtxg_hook_init(const struct rtxg_hook_user *user);
void rtxg_hook_exit(void);

#endif
