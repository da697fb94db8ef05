/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * page.h - the shared page: one 4096-byte page for one task, mapped only by that client and by its
 * host.
 *
 * The host writes the permits and never reads its own words back: it keeps the grants in private
 * memory. The client writes its launches and completions. The host treats every client word as a
 * claim and bounds the claim by its own knowledge. Garbage in the page harms its writer only.
 *
 * The protocol, for one engine ("lane"):
 *
 *   launch   in_flight += 1 (sequentially consistent), then load permit. GRANTED: launch. Else
 *            in_flight -= 1, want = 1, ring the doorbell, wait on permit (futex, or the module's
 *            ioctl) until GRANTED, and begin again; want is taken back when in_flight holds the
 *            launch and before launches counts it, or with a ring when the thread gives up. So a
 *            host that sees GRANTED, in_flight 0 and want > 0 knows that a thread is on its way to
 *            use the permit. A ONESHOT permit is consumed by the launch: compare-and-exchange
 *            GRANTED away, keeping the sequence. launches += 1 before the permit can be reported as
 *            used up. A thread that finds no permit though the sequence has changed since it rang
 *            rings again: a permit came and went without it. A permit that was GRANTED when it
 *            rang counts as changed, once it is found gone.
 *   complete if this is the last: busy_ns and completions first; then in_flight -= 1; if that
 *            leaves 0, load permit and ring if it is not GRANTED or carries REPORT.
 *            A permit with neither ONESHOT nor REPORT asks for no ring. The host may look at the
 *            page by itself, and change the flags of a permit that is in force.
 *   alert    while a client waits, the host may set READY without a new sequence, and wake it:
 *            what is on the engine is likely to end before ready_until. A client that looks at the
 *            word until then, instead of sleeping, launches as soon as it may. One that does not
 *            know the bit waits on.
 *   revoke   the host stores permit without GRANTED, then loads in_flight: 0 means released; else
 *            the client will ring.
 *   fence    a client may let the device say by itself that launches have completed: the host
 *            knows a word that the device writes (RTXG_IOC_HOST_FENCE; "fence" and "fence-event" of
 *            the daemon's protocol). Once such a launch is with the device, fence is set to what
 *            the word will be when that launch and all before it have completed (if that is more
 *            than it was), then fenced += 1. When the launch completes, fenced -= 1 comes before
 *            in_flight -= 1. A host that loads in_flight,
 *            fenced and fence, in this order, finds the first two equal and the word at fence or
 *            past it ((int32_t)(word - fence) >= 0), knows that nothing is in flight, whether or
 *            not the client has run since: all that was in flight at the first load was covered
 *            by the second, and what the word covers only grows.
 *   expel    a client that keeps others waiting for too long loses its permit as in revoke. It gets
 *            no other one before its page shows that it goes on: what was in flight has ended
 *            (in_flight is 0, or completions has changed); or, if nothing was, it launches or
 *            rings.
 *
 * The sequentially consistent pair (client: in_flight then permit; host: permit then in_flight)
 * guarantees that either the client sees the revocation or the host sees the launch.
 *
 * The doorbell is an eventfd (daemon) or RTXG_IOC_RING (module); ringing without need is harmless.
 */
#ifndef RTXG_UAPI_PAGE_H
#define RTXG_UAPI_PAGE_H

#include <linux/types.h>

#define RTXG_PAGE_SIZE	  4096u
#define RTXG_PAGE_MAGIC	  0x67787472u /* "rtxg" */
#define RTXG_PAGE_VERSION 1u
#define RTXG_PAGE_LANES	  3u /* compute, copy in, copy out: the order of enum rtxg_engine */

/*
 * Bits of a lane's permit. The upper 24 bits are a sequence number that changes with every permit
 * given.
 */
#define RTXG_PERMIT_GRANTED (1u << 0)
#define RTXG_PERMIT_ONESHOT (1u << 1) /* good for one launch */
#define RTXG_PERMIT_REPORT  (1u << 2) /* ring whenever in_flight falls to 0 */
/* the host is gone or refuses: no permit will come; see rtxg_page.closed_errno */
#define RTXG_PERMIT_CLOSED (1u << 3)
/* not granted, but likely to be soon: who waits may look at the word instead of sleeping */
#define RTXG_PERMIT_READY     (1u << 4)
#define RTXG_PERMIT_SEQ_SHIFT 8u

struct rtxg_lane {
	/* Written by the host. */
	__u32 permit; /* futex word */
	__u32 host_reserved0;
	__u64 ready_until; /* READY: CLOCK_MONOTONIC ns until which a permit is likely to come */
	__u32 host_reserved[12];
	/* Written by the client. */
	__u32 in_flight;   /* launches that have not completed */
	__u32 want;	   /* threads that wait for the permit */
	__u64 launches;	   /* total, only grows */
	__u64 completions; /* times in_flight fell to 0, only grows */
	/* total time with in_flight > 0, CLOCK_MONOTONIC, only grows; a claim */
	__u64 busy_ns;
	__u64 busy_since; /* CLOCK_MONOTONIC ns when in_flight left 0; 0 while it is 0 */
	/* total execution time by the GPU API's own events, only grows; 0 if unknown; a claim */
	__u64 device_ns;
	/* threads that wait for the permit to be called back: the host wakes them too */
	__u32 watch;
	__u32 fenced; /* launches in flight whose end the device's word tells */
	__u64 fence;  /* what that word is when they all have completed; 32 bits of it count */
};

struct rtxg_page {
	/* Written by the host. */
	__u32 magic;
	__u32 version;
	__u32 size;	    /* of this structure */
	__u32 flags;	    /* RTXG_PAGE_F_* */
	__u32 closed_errno; /* why the host closed this task; positive errno */
	__u32 gpu;
	__u64 host_generation; /* changes when a restarted host takes the client over */
	__u64 host_reserved[4];
	/* Written by the client. */
	__u32 client_flags; /* RTXG_PAGE_C_*; a claim */
	__u32 client_reserved0;
	__u64 client_reserved[7];

	struct rtxg_lane lanes[RTXG_PAGE_LANES];
};

/* if the host dies: launches wait (closed) instead of going on unmanaged (open) */
#define RTXG_PAGE_F_FAIL_CLOSED (1u << 0)

/* some of the program's work passes by without permits: lists say that it is managed in part */
#define RTXG_PAGE_C_UNGATED (1u << 0)

_Static_assert(sizeof(struct rtxg_lane) == 128, "a lane is two cache lines: one for each writer");
_Static_assert(sizeof(struct rtxg_page) <= RTXG_PAGE_SIZE, "the page is one page");

#endif
