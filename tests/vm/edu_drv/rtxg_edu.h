/* SPDX-License-Identifier: MIT */
/*
 * rtxg_edu.h - what programs say to the tests' accelerator driver. It knows nothing of rtxg: it
 * stands for a vendor's driver.
 *
 * A launch is queued and runs alone on the device until it has taken its time; completion raises an
 * MSI. A program waits in the driver (woken from its tasklet, as vendors do) or looks itself: a
 * fence page shows the last sequence completed. With mode=1 the fence is written before the
 * interrupt, as a GPU does; with mode=0 by the driver's handler, as edu cannot.
 */
#ifndef RTXG_EDU_H
#define RTXG_EDU_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct rtxg_edu_launch {
	/* in: how long the kernel occupies the device, 1 us .. 2 s; 0: until it is told to end */
	__u64 duration_ns;
	__u64 sequence; /* out: its number, counted over all programs */
};

struct rtxg_edu_stats {
	__u64 launched;
	__u64 completed;
	__u64 interrupts; /* handled by the driver's own top half */
	__u64 bottom;	  /* runs of its bottom half */
	__u64 served; /* interrupts whose bottom half has run; as many as interrupts: none is due */
	__u64 busy_ns; /* time between start and completion interrupt, summed */
	__u64 irq;     /* Linux interrupt number */
	/* cycle counter, of the last interrupt */
	/* before the device was told to raise it (mode=1 and STORM) */
	__u64 raised_cycles;
	__u64 identified_cycles; /* the driver's top half has read what it is */
	__u64 bottom_cycles;	 /* its bottom half is about to wake who waits */
};

#define RTXG_EDU_LAUNCH _IOWR('E', 1, struct rtxg_edu_launch)
#define RTXG_EDU_SYNC	_IOW('E', 2, __u64) /* waits until that sequence has completed */
/* the device raises that many interrupts that complete nothing */
#define RTXG_EDU_STORM _IOW('E', 3, __u32)
#define RTXG_EDU_STATS _IOR('E', 4, struct rtxg_edu_stats)
/*
 * 1: puts another handler over whatever stands in the interrupt's place, as a second interceptor
 * would; 0: takes it out.
 */
#define RTXG_EDU_STACK _IOW('E', 5, __u32)
/*
 * Frees the interrupt and asks for it again, as a driver does around a reset: with the handler that
 * it has in this form. Nothing may be in flight.
 */
#define RTXG_EDU_REQUEST    _IOW('E', 6, __u32)
#define RTXG_EDU_F_TOP	    0u /* all is done in the top half */
#define RTXG_EDU_F_THREADED 1u /* the top half asks for a thread, which completes the kernel */
#define RTXG_EDU_F_OTHER    2u /* as TOP, by another function */
#define RTXG_EDU_F_FREE	    3u /* only frees it: the device stays without an interrupt */
#define RTXG_EDU_FORMS	    4u
/* with one of these: not by MSI, but on the line of its pin, with IRQF_SHARED as others on it */
#define RTXG_EDU_F_LINE 0x10u

/* ends the kernel on the device, which was launched without a duration, as the device would */
#define RTXG_EDU_END _IO('E', 7)
/*
 * The same, but between the device's next interrupt and the driver's look at what raised it: as if
 * the kernel ended just then, and is served in an interrupt that came for something else.
 */
#define RTXG_EDU_JOIN _IO('E', 8)

/*
 * The device copies some of the driver's memory into its own, in about 100 ms, beside the kernel
 * that it runs. Its number, counted over all programs: the fence page's second word when it has
 * completed. -EBUSY while one is under way.
 */
#define RTXG_EDU_COPY _IOR('E', 9, __u64)

/*
 * Registers of QEMU's edu that a bystander may read: which interrupt it is, and whether the device
 * computes.
 */
#define RTXG_EDU_REG_STATUS	0x20
#define RTXG_EDU_REG_IRQ_STATUS 0x24
#define RTXG_EDU_IRQ_COMPLETE	0x1 /* a kernel has ended */
#define RTXG_EDU_IRQ_STORM	0x2
#define RTXG_EDU_IRQ_COPY	0x100 /* a copy has ended */

#endif
