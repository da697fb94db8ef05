/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * events.h - the module's log: tracepoints of the kernel's own tracer
 * (/sys/kernel/tracing/events/rtxg), beside the scheduler's. They cost a branch that is not taken
 * while none is on.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rtxg

#if !defined(RTXG_KMOD_EVENTS_H) || defined(TRACE_HEADER_MULTI_READ)
#define RTXG_KMOD_EVENTS_H

#include <linux/tracepoint.h>

/* clang-format off */
/* Work of an intercepted interrupt; its stage is an enum rtxg_stage. */
DECLARE_EVENT_CLASS(rtxg_irq_work,
	TP_PROTO(unsigned int irq, unsigned int stage),
	TP_ARGS(irq, stage),
	TP_STRUCT__entry(
		__field(unsigned int, irq)
		__field(unsigned int, stage)
	),
	TP_fast_assign(
		__entry->irq = irq;
		__entry->stage = stage;
	),
	TP_printk("irq=%u stage=%s", __entry->irq,
		  __print_symbolic(__entry->stage, { 0, "top" }, { 1, "thread" }, { 2, "second" },
				   { 3, "tasklet" }))
);

/* It begins here, in this thread. */
DEFINE_EVENT(rtxg_irq_work, rtxg_irq_begins,
	TP_PROTO(unsigned int irq, unsigned int stage),
	TP_ARGS(irq, stage)
);

DEFINE_EVENT(rtxg_irq_work, rtxg_irq_ends,
	TP_PROTO(unsigned int irq, unsigned int stage),
	TP_ARGS(irq, stage)
);

/* From now on the interrupt's threads work for this owner (0: for none), at this priority. */
TRACE_EVENT(rtxg_irq_owner,
	TP_PROTO(unsigned int irq, int owner, int prio, unsigned int priority, int only_cpu),
	TP_ARGS(irq, owner, prio, priority, only_cpu),
	TP_STRUCT__entry(
		__field(unsigned int, irq)
		__field(int, owner)
		__field(int, prio)
		__field(unsigned int, priority)
		__field(int, only_cpu)
	),
	TP_fast_assign(
		__entry->irq = irq;
		__entry->owner = owner;
		__entry->prio = prio;
		__entry->priority = priority;
		__entry->only_cpu = only_cpu;
	),
	TP_printk("irq=%u owner=%d prio=%d threads=%u cpu=%d", __entry->irq, __entry->owner,
		  __entry->prio, __entry->priority, __entry->only_cpu)
);
/* clang-format on */

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE events
#include <trace/define_trace.h>
