/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * irq.h - interception of another driver's interrupt, through /dev/rtxg.
 *
 * An attachment names an interrupt (by number, or by the name that its driver gave it and that
 * /proc/interrupts shows) and, if wanted, a register of a PCI device that tells which of the
 * device's sources raised it. The register is read before the driver's own handler runs, since that
 * handler resets it. A match counts as an event and wakes the waiters, highest priority first,
 * from the top half. Attachments end with the file.
 *
 * An event is a hint, and never the proof. A source that appears after the register was read and
 * before the driver reads it is served in the same interrupt. So an interrupt in which the driver
 * had something to do (not IRQ_NONE) is an event too when the register did not show the source, as
 * soon as the handler that knows has come back. These are the other sources of the same device, and
 * at most one such event comes of each interrupt, or of each run of the handler's thread.
 *
 * Needs CAP_SYS_RAWIO: the caller chooses a device register that is then read at every interrupt,
 * and some registers change by being read. A kernel that is locked down refuses a register with
 * -EPERM.
 */
#ifndef RTXG_UAPI_IRQ_H
#define RTXG_UAPI_IRQ_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define RTXG_IRQ_NAME 32
/* Threads that wait on one attachment at a time; the next is answered -EAGAIN. */
#define RTXG_IRQ_WAITERS 64

/* How the interrupt is watched. */
/* name and index choose the interrupt, irq is an output */
#define RTXG_IRQ_F_BY_NAME (1u << 0)
#define RTXG_IRQ_F_SOURCE  (1u << 1) /* read the register and count only what matches */
/* observe through the kernel's irq_handler tracepoints: the handler is not touched */
#define RTXG_IRQ_F_TRACEPOINT (1u << 2)
/* match when (register & mask) == value; else when (register & mask) != 0 */
#define RTXG_IRQ_F_EQUAL (1u << 3)
/*
 * Wake the waiters when the driver's own handler (its thread, where it has one) has come back, not
 * before it runs. For completions whose proof the driver writes and not the device: slower, see
 * docs/interrupts.md.
 */
#define RTXG_IRQ_F_AFTER (1u << 4)
/*
 * Only what the register showed is an event: none is spurious, and some may be missed. Needs
 * SOURCE.
 */
#define RTXG_IRQ_F_EXACT (1u << 5)
#define RTXG_IRQ_F_ALL	 0x3fu

struct rtxg_irq_attach {
	__u32 size;  /* of this structure */
	__u32 flags; /* RTXG_IRQ_F_* */
	__u32 irq;   /* Linux interrupt number: in, or out with BY_NAME */
	/*
	 * BY_NAME: which of several with that name, counted from 0 in order of number; also among
	 * the handlers of one shared interrupt. By number: which handler of a shared interrupt
	 */
	__u32 index;
	char name[RTXG_IRQ_NAME]; /* BY_NAME: in; else out */
	/* The source register (SOURCE); else 0. */
	__u32 domain; /* PCI */
	__u32 bus;
	__u32 devfn;
	__u32 bar;    /* 0..5, a memory BAR */
	__u64 offset; /* a multiple of width, inside the BAR */
	__u64 mask;   /* not 0 */
	__u64 value;  /* EQUAL */
	__u32 width;  /* bytes: 1, 2, 4 or 8 */
	__u32 id;     /* out: names the attachment in the calls below, for this file */
	/*
	 * out: 1 if the driver's handler runs in a thread (its own wish, or PREEMPT_RT). With
	 * PREEMPT_RT a driver that has a handler and a thread runs both in threads, one after the
	 * other
	 */
	__u32 threaded;
	__u32 reserved[5];
};

/*
 * Waits for an event. -ETIMEDOUT; -EINTR by a signal; -ENODEV: the driver has freed the interrupt
 * and no event is left that the caller has not seen, so attach again; -EPIPE: the attachment was
 * detached meanwhile; -EAGAIN: RTXG_IRQ_WAITERS threads wait already.
 */
struct rtxg_irq_wait {
	__u32 size;
	__u32 id;
	__u64 seen; /* in: number of events known to the caller; out: number now */
	/* in: absolute, CLOCK_MONOTONIC; 0 = do not wait, U64_MAX = for ever */
	__u64 until_ns;
	/*
	 * out: CLOCK_MONOTONIC when the last event's top half was entered; of one that the register
	 * did not show, when the driver's handler had come back
	 */
	__u64 entry_ns;
	__u64 status;	    /* out: the register as read then; 0 without SOURCE, or not shown */
	__u64 entry_cycles; /* out: cycle counter then */
	__u64 wake_cycles;  /* out: cycle counter when waking began */
	__u64 reserved[2];
};

struct rtxg_irq_stats {
	__u32 size;
	__u32 id;
	__u32 gone;    /* 1: the driver has freed this interrupt; attach again */
	__u32 waiters; /* tasks that wait now */
	__u64 entries; /* the top half was entered, before the driver's handler */
	__u64 exits;   /* the driver's handler came back */
	__u64 handled; /* of these, IRQ_HANDLED or IRQ_WAKE_THREAD */
	/* entries that the source register says are meant (all without SOURCE) */
	__u64 matched;
	__u64 wakeups;	  /* tasks woken */
	__u64 handler_ns; /* sum over the driver's top half */
	__u64 handler_min_ns;
	__u64 handler_max_ns;
	/* the same for the handler's thread, where there is one; of two threads the sum */
	__u64 thread_entries;
	__u64 thread_exits;
	__u64 thread_ns;
	__u64 thread_max_ns;
	__u64 unseen; /* events that the register did not show, or not before they were served */
	__u64 reserved[1];
};

struct rtxg_irq_detach {
	__u32 size;
	__u32 id;
};

/*
 * The attachment's events are completions on an engine of a GPU of rtxg's (rtxg/host.h): if the
 * fence of the task that holds the engine has passed, the next task gets its permit at once, in the
 * top half, or with RTXG_IRQ_F_AFTER when the driver's handler has come back. A binding ends with
 * its attachment, or by another one. The GPU is made if it is not there, and cannot be removed
 * while it is bound. Needs CAP_SYS_NICE too.
 */
struct rtxg_irq_bind {
	__u32 size;
	__u32 id;
	__u32 engine; /* enum rtxg_engine; RTXG_IRQ_UNBOUND: of none */
	__u32 reserved0;
	char gpu[64]; /* "" = "0" */
	__u64 reserved[2];
};

#define RTXG_IRQ_UNBOUND 0xffffffffu

/*
 * At which priority the driver's threads of an interrupt run (klmirqd). Ends with the attachment,
 * and then they are as they were. Needs CAP_SYS_NICE too. -EOPNOTSUPP: the driver has no thread, or
 * this kernel has no function tracer; -EBUSY: another attachment has set it, or another module has
 * patched the kernel's function that queues tasklets; -ENODEV: the driver has freed the interrupt;
 * -ESRCH: there is no such thread.
 */
enum rtxg_irq_mode {
	RTXG_IRQ_KEPT,	/* as before */
	RTXG_IRQ_FIXED, /* at one priority */
	/*
	 * at the effective priority of the owner: the task that holds the engine that the
	 * attachment is bound to, and those that wait for it; else the thread named by pid
	 */
	RTXG_IRQ_OWNER,
	/*
	 * as OWNER, but a tasklet whose owner comes before the task that was interrupted runs at
	 * once, on the back of that task (process-aware interrupts: Zhang and West 2006)
	 */
	RTXG_IRQ_PAI,
};

#define RTXG_IRQ_PRIORITY_MAX 97u
/*
 * OWNER: they may run while their owner does. Else they stay on the CPU of an owner that may run on
 * one only, and so never run at the same time
 */
#define RTXG_IRQ_BESIDE (1u << 0)
/*
 * what the handler, or its thread, queues as a tasklet is run by a thread of the module's, which is
 * one of the interrupt's threads then. PAI needs it
 */
#define RTXG_IRQ_TASKLETS (1u << 1)

struct rtxg_irq_own {
	__u32 size;
	__u32 id;
	__u32 mode;	/* enum rtxg_irq_mode */
	__u32 priority; /* SCHED_FIFO, 1..97. FIXED: of the threads; else of those with no owner */
	__u32 flags;	/* RTXG_IRQ_BESIDE, RTXG_IRQ_TASKLETS */
	__s32 pid;	/* OWNER, PAI: a thread; 0: none is named */
	/*
	 * OWNER, PAI: without an owner they run in a bandwidth server, so long in each period (100
	 * us .. 1 h) at the priority, and then as ordinary threads until the next. It counts for
	 * the admission of CPU policies: -ENOSPC. 0: as long as they like
	 */
	__u64 runtime_ns;
	__u64 period_ns;
};

/* -ENOENT: no priority was set for it. */
struct rtxg_irq_owner {
	__u32 size;
	__u32 id;
	__u32 mode; /* this and all below: out */
	__u32 priority;
	__u32 flags;
	__u32 now;	/* the first thread's priority */
	__s32 cpu;	/* where they must run; -1: where they like */
	__s32 thread;	/* the driver's threads; 0: it has none */
	__s32 second;	/* 0: it has one */
	__s32 owner;	/* 0: none */
	__u64 since_ns; /* CLOCK_MONOTONIC: the owner is theirs since then */
	__u64 changes;	/* of their priority or CPU */
	__u64 runs;	/* of the threads */
	__u64 beside;	/* of these, begun while the owner ran on another CPU */
	__s32 tasklets; /* the thread that runs its tasklets; 0: none */
	__u32 reserved0;
	__u64 redirected; /* tasklets that it has run */
	__u64 at_once; /* PAI: tasklets that the kernel ran, on the back of the interrupted task */
	__u64 exhausted; /* times that the bandwidth server's budget was used up */
};

#define RTXG_IOC_IRQ_ATTACH _IOWR('x', 0x40, struct rtxg_irq_attach)
/*
 * -EBUSY: another module has put its handler over rtxg's. rtxg's handler and the module stay until
 * the other handler is gone.
 */
#define RTXG_IOC_IRQ_DETACH _IOW('x', 0x41, struct rtxg_irq_detach)
#define RTXG_IOC_IRQ_WAIT   _IOWR('x', 0x42, struct rtxg_irq_wait)
#define RTXG_IOC_IRQ_STATS  _IOWR('x', 0x43, struct rtxg_irq_stats)
#define RTXG_IOC_IRQ_BIND   _IOW('x', 0x44, struct rtxg_irq_bind)
#define RTXG_IOC_IRQ_OWN    _IOW('x', 0x45, struct rtxg_irq_own)
#define RTXG_IOC_IRQ_OWNER  _IOWR('x', 0x46, struct rtxg_irq_owner)

#endif
