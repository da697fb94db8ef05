// SPDX-License-Identifier: GPL-2.0-only
/*
 * trace.c - probes on the kernel's own tracepoints.
 *
 * The tracepoints that we need are in every kernel but are not exported to modules by name; the
 * list of all of them is. A probe is registered when somebody first needs it, and stays until the
 * module goes: each change patches the kernel's code and interrupts every CPU for it, which nobody
 * wants while real-time tasks run. Probes only observe and hand over.
 */
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "compat.h"
#include "rtxg_kmod.h"

struct probe {
	const char *name;
	void *function;
	enum rtxg_trace_set set;
	struct tracepoint *point;
};

static void probe_irq_entry(void *data, int irq, struct irqaction *action)
{
	rtxg_irq_traced_entry(irq, action->dev_id);
}

static void probe_irq_exit(void *data, int irq, struct irqaction *action, int result)
{
	rtxg_irq_traced_exit(irq, action->dev_id, result);
}

static void probe_switch(void *data, bool preempt, struct task_struct *prev,
			 struct task_struct *next, unsigned int prev_state)
{
	rtxg_cpu_traced_switch(prev, next);
}

static void probe_fork(void *data, struct task_struct *parent, struct task_struct *child)
{
	rtxg_cpu_traced_fork(parent, child);
}

static void probe_exit(void *data, struct task_struct *task RTXG_EXIT_PROBE_MORE)
{
	rtxg_cpu_traced_exit(task);
}

static struct probe probes[] = {
	{ "sched_switch", probe_switch, RTXG_TRACE_TASK },
	{ "sched_process_fork", probe_fork, RTXG_TRACE_TASK },
	{ "sched_process_exit", probe_exit, RTXG_TRACE_TASK },
	{ "irq_handler_entry", probe_irq_entry, RTXG_TRACE_IRQ },
	{ "irq_handler_exit", probe_irq_exit, RTXG_TRACE_IRQ },
};

static DEFINE_MUTEX(lock);
static bool active[RTXG_TRACE_SETS];

static void find(struct tracepoint *point, void *unused)
{
	for (size_t i = 0; i < ARRAY_SIZE(probes); i++)
		if (!strcmp(point->name, probes[i].name))
			probes[i].point = point;
}

void rtxg_trace_init(void)
{
	for_each_kernel_tracepoint(find, NULL);
}

static void unregister(enum rtxg_trace_set set, size_t end)
{
	for (size_t i = 0; i < end; i++)
		if (probes[i].set == set)
			tracepoint_probe_unregister(probes[i].point, probes[i].function, NULL);
}

int rtxg_trace_need(enum rtxg_trace_set set)
{
	int err = 0;

	mutex_lock(&lock);
	for (size_t i = 0; i < ARRAY_SIZE(probes) && !active[set] && !err; i++) {
		if (probes[i].set != set)
			continue;
		err = probes[i].point
			      ? tracepoint_probe_register(probes[i].point, probes[i].function, NULL)
			      : -EOPNOTSUPP;
		if (err)
			unregister(set, i);
	}
	if (!err)
		active[set] = true;
	mutex_unlock(&lock);
	return err;
}

void rtxg_trace_exit(void)
{
	for (int set = 0; set < RTXG_TRACE_SETS; set++)
		if (active[set])
			unregister(set, ARRAY_SIZE(probes));
	/* no probe of ours runs any more once this returns */
	tracepoint_synchronize_unregister();
}
