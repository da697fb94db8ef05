/* SPDX-License-Identifier: MIT */
/*
 * fake_nvrm.h - a driver and a GPU that are not there, for channels of one's own: it answers the
 * set-up's calls as release 580 was seen to answer on an H100, or as the headers of another release
 * have it, and a thread plays the engine, which reads rings, waits for words, writes fences and
 * raises interrupts. Descriptors are real ones.
 */
#ifndef RTXG_FAKE_NVRM_H
#define RTXG_FAKE_NVRM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "rm.h"

struct fake_nvrm {
	/* What it is to do */
	int open_error;	    /* opening a device file fails with this errno */
	const char *denied; /* the file that this user may not open; NULL: none */
	uint32_t gpus; /* how many cards; card i is at PCI bus 0x40 - i, and is /dev/nvidia<i> */
	uint32_t dead_engines; /* a bit for each copy engine that takes nothing from its rings */
	uint32_t runlist_0;    /* a bit for each copy engine in the compute engine's queue */
	/*
	 * A channel that is not bound to its engine has no runlist, so no token; or another
	 * engine's, where it waits for ever.
	 */
	bool needs_bind, unbound_astray;
	bool no_interrupts; /* they are lost */
	bool hold_fences;   /* none is written as yet: the engine takes its place again */
	bool hold_sleeps;   /* whoever is in poll() stays there */
	/*
	 * It says that it has taken a place from the ring when it begins with it, as one does that
	 * reads ahead.
	 */
	bool reads_ahead;
	uint32_t release;      /* of the driver; 0: it does not say, and is 580 */
	uint32_t refuse_class; /* that class is not known */
	/* channels and doorbells of lower numbers are not known */
	uint32_t oldest_class, oldest_doorbell;
	/*
	 * This call of the driver (from 1) is refused; 0: none. By a status, or by the kernel with
	 * an errno.
	 */
	int fail_call;
	uint32_t fail_status;
	int fail_errno;
	bool lost; /* the GPU has fallen off the bus */
	/*
	 * Time in the place of the machine's, if it is not 0: it goes on by each look at the clock,
	 * and in poll(). At end_at the GPU, whose clock runs apart, writes value to the word.
	 */
	uint64_t clock, end_at, apart;
	uint64_t timer_late, interrupt_late; /* how long after it is due a sleep ends */
	volatile uint32_t *word;
	uint32_t value;
	const volatile void *unmappable; /* the page of the process that cannot be pinned */

	/* What it has seen */
	int calls;     /* of the driver */
	int opens;     /* of device files, since the beginning */
	int fds, maps; /* that are open now */
	/* the longest time between two sleeps, on that clock; since when; 0: no sleep as yet */
	uint64_t awake, awake_at;
	uint64_t busy;	/* on that clock, outside of sleeps, since the first of them */
	int sleeps;	/* calls of poll() */
	int asleep;	/* in poll() now */
	int objects;	/* that are allocated now, without clients */
	int clients;	/* now */
	int interrupts; /* raised */
	int held;	/* looks at a word that an acquire still waits for */
	int wild;	/* things that no driver would survive */
};

extern struct fake_nvrm fake_nvrm;
extern const struct nv_sys fake_nvrm_sys;
/* Called for pages of which the GPU's way has gone, if it is set. */
extern void (*fake_nvrm_unpin)(uint64_t from);

/* Takes everything back and starts the engine's thread if it does not run. */
void fake_nvrm_reset(void);
/* What it has seen, while other threads call it. */
struct fake_nvrm fake_nvrm_seen(void);
/*
 * _Fork(), while the engine is in no call: its thread would hold the lock for ever in the child.
 * There the driver starts anew, but for the descriptors that the parent's programs have open.
 */
pid_t fake_nvrm_fork_untold(void);
/* An interrupt of another program's work. */
void fake_nvrm_interrupt(void);

#endif
