/* SPDX-License-Identifier: MIT */
/*
 * nvrm_timeline.h - what a timeline and an open GPU are, for nvrm.c and nvrm_wait.c. Not installed.
 */
#ifndef RTX_LIB_NVRM_TIMELINE_H
#define RTX_LIB_NVRM_TIMELINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cuda_pages.h"
#include "foresee.h"
#include "nvrm_gpu.h"
#include "rtxg_nvrm.h"
#include "sys.h"

/* What stands in a place of the channel's ring. */
struct armed_place {
	uint64_t payload; /* of its fence; 0: nothing has been armed here */
	uint64_t begun;	  /* when its work was given to the stream, or it was armed */
	uint32_t value;
};

struct rtx_timeline {
	/* These outlive it, for threads that come too late. */
	unsigned int number;
	uint32_t inside;       /* threads in a call: it is not closed before they leave */
	pthread_mutex_t lock;  /* of what is armed and foreseen, and of the channel's ring */
	struct rtx_nvrm *nvrm; /* NULL: not open */
	bool closing;
	uint64_t opened; /* the so-manieth of the process */

	volatile uint32_t *word;
	uint64_t word_at;  /* for the GPU */
	uint32_t imported; /* handle of a page that is not ours */
	struct cuda_page page;
	struct nvrm_channel channel;

	uint32_t next; /* what rtx_lib_timeline_next() gave last */
	bool any_armed;
	uint32_t armed; /* last one */
	bool quiet;	/* that one raises no interrupt */
	uint64_t payloads;
	uint64_t next_at; /* when next was given */

	/*
	 * The last wait, whose stamp may come after the word; and what is foreseen of the next one.
	 */
	struct foresee foresee;
	struct foresee_use last;
	uint32_t last_place;
	uint64_t last_payload; /* 0: there is none */
	bool foresees;

	/* One waiter sleeps in the driver, the others on a futex that it rings. */
	uint32_t leader, turn;
	uint32_t users; /* that wait */
	uint64_t counted_armed, waits, wakes, missed, looks, hits;

	struct armed_place places[NVRM_ENTRIES]; /* last: what a wait needs lies together */
};

struct rtx_nvrm {
	uint32_t generation; /* of the process that opened it: forks so far */
	bool closed;
	struct nvrm_gpu *gpu; /* with others of this process */
	struct nvrm_memory memory;
	struct nvrm_channel
		first; /* until a timeline takes it; none, where another opened the GPU */
	bool first_taken;
	struct rtx_nvrm *later;
	/* These outlive it, for threads that come too late. */
	pthread_mutex_t lock; /* of the timelines, and of all that is opened and closed */
	struct rtx_timeline timelines[RTX_TIMELINES_MAX];
};

_Static_assert(RTX_TIMELINES_MAX == NVRM_CHANNELS, "a channel each");
_Static_assert(RTX_TIMELINE_ARMED_MAX == NVRM_ENTRIES - 1, "a place each");

static inline uint64_t timeline_now(const struct rtx_timeline *t)
{
	const struct nv_sys *sys = t->nvrm->gpu->sys;

	return sys->now_ns(sys->ctx);
}

static inline uint32_t timeline_word(const struct rtx_timeline *t)
{
	return __atomic_load_n(t->word, __ATOMIC_ACQUIRE);
}

static inline bool timeline_reached(const struct rtx_timeline *t, uint32_t value)
{
	return (int32_t)(timeline_word(t) - value) >= 0;
}

/* Interrupts are asked for from now on. Called with t->lock held. */
int rtx_lib_timeline_event(struct rtx_timeline *t);
/*
 * quiet: who waits for it foresees, and asks for the interrupt later if it is needed. -EAGAIN: no
 * place in the ring. -ERANGE: an earlier one than the last. Called with t->lock held.
 */
int rtx_lib_timeline_arm(struct rtx_timeline *t, uint32_t value, bool quiet);
/* May the next value be armed quietly? Called with t->lock held. */
bool rtx_lib_timeline_quiet(struct rtx_timeline *t);
/* The last value that is armed raises an interrupt from now on. Called with t->lock held. */
int rtx_lib_timeline_loud(struct rtx_timeline *t);
/*
 * Gives the last wait to what is foreseen, if its stamp is there: the channel comes a little after
 * the word. Called with t->lock held.
 */
void rtx_lib_timeline_learn(struct rtx_timeline *t);

#endif
