/* SPDX-License-Identifier: MIT */
/*
 * foresee.h - when the next use of a timeline will end, as far as the last ones tell, and for how
 * long a waiter may look for it. Not installed.
 *
 * The GPU's stamps say how long a use took, by a clock that runs apart from ours by an unknown
 * difference. So one number is learned instead: how far ahead of the foreseen stamp to ask for the
 * wake-up. It takes in the difference of the clocks, how late the machine's timers are, and a
 * margin.
 */
#ifndef RTX_LIB_FORESEE_H
#define RTX_LIB_FORESEE_H

#include <stdbool.h>
#include <stdint.h>

/* Uses that are compared: all but one of them must have taken equally long. */
#define FORESEE_KEPT 5u
/* What counts as equally long, and the longest look; of waits that would rather sleep. */
#define FORESEE_SPREAD_NS 10000
#define FORESEE_LOOK_NS	  10000
#define FORESEE_GLANCE_NS 3000
/* Each wait may look for so long on average; a look in vain costs a second sleep as well. */
#define FORESEE_SHARE_NS	4000
#define FORESEE_GLANCE_SHARE_NS 1000
#define FORESEE_PURSE_NS	20000
#define FORESEE_SLEEP_NS	5000

/* How a wait was ended. */
enum foresee_end {
	FORESEE_SLEPT, /* nothing was foreseen */
	FORESEE_LATE,  /* woken by the timer or the interrupt, and the word was there */
	FORESEE_HIT,   /* while looking */
	FORESEE_VAIN,  /* looked, slept again, and then it came */
};

/* All but the GPU's stamp is of CLOCK_MONOTONIC. */
struct foresee_use {
	uint64_t begun;	 /* when the work was given to the GPU */
	uint64_t stamp;	 /* when it ended, by the GPU's clock */
	uint64_t seen;	 /* when the word was seen to have its value */
	uint64_t looked; /* for how long, ns */
	enum foresee_end end;
};

/* Zero: nothing is known, and it looks. */
struct foresee {
	/*
	 * Wakes shortly after the end rather than before it, so that it looks as seldom as it may.
	 */
	bool sleeps;
	bool met;		      /* sleeps: has woken before an end */
	unsigned int late;	      /* sleeps: uses since then */
	uint64_t took[FORESEE_KEPT];  /* stamp - begun */
	uint64_t apart[FORESEE_KEPT]; /* stamp - seen */
	unsigned int kept, next;
	bool set;
	uint64_t ahead;
	enum foresee_end side; /* of the last error, and how far it was mended */
	int64_t step, purse;
};

/* The longest look. */
uint64_t rtx_lib_foresee_look(const struct foresee *f);
/* Will the next use be foreseen, as far as is known before it begins? */
bool rtx_lib_foresee_can(const struct foresee *f);
/* When to ask to be woken in order to look; 0: not to look, for this wait. */
uint64_t rtx_lib_foresee_wake(struct foresee *f, uint64_t begun, uint64_t now);
void rtx_lib_foresee_note(struct foresee *f, const struct foresee_use *use);

#endif
