// SPDX-License-Identifier: MIT
/*
 * foresee.c - see foresee.h. May not: read a clock, sleep, or make a system call.
 */
#include "foresee.h"

#define MARGIN_NS      2000  /* how early to look, on average */
#define FIRST_GUESS_NS 60000 /* an interrupt's way to the waiter, and a timer's */
#define LATE_STEP_NS   2000
#define VAIN_STEP_NS   4000
#define STEP_MAX_NS    64000
/* Of waits that sleep: how far they come nearer to the end, and go back from it. */
#define CREEP_NS     300
#define CREEP_USES   8 /* after so many each step is twice as long: the clocks drift */
#define CREEP_MAX_NS 20000
#define BACK_NS	     3000
/* Less is not worth a sleep. */
#define NAP_NS 15000

/* a - b, of clocks that may go round. */
static int64_t after(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b);
}

/* The middle one of the uses' lengths; false: they do not agree. */
static bool length(const struct foresee *f, uint64_t *middle)
{
	uint64_t sorted[FORESEE_KEPT];
	int64_t low, high;

	if (f->kept < FORESEE_KEPT)
		return false;
	for (unsigned int i = 0; i < FORESEE_KEPT; i++) {
		unsigned int k = i;

		for (; k && after(sorted[k - 1], f->took[i]) > 0; k--)
			sorted[k] = sorted[k - 1];
		sorted[k] = f->took[i];
	}
	*middle = sorted[FORESEE_KEPT / 2];
	low = after(sorted[FORESEE_KEPT - 2], sorted[0]);
	high = after(sorted[FORESEE_KEPT - 1], sorted[1]);
	return (low < high ? low : high) <= FORESEE_SPREAD_NS;
}

/* No use was seen before its end: the clocks are at least so far apart. */
static uint64_t least_apart(const struct foresee *f)
{
	uint64_t least = f->apart[0];

	for (unsigned int i = 1; i < FORESEE_KEPT; i++)
		if (after(f->apart[i], least) > 0)
			least = f->apart[i];
	return least;
}

uint64_t rtx_lib_foresee_look(const struct foresee *f)
{
	return f->sleeps ? FORESEE_GLANCE_NS : FORESEE_LOOK_NS;
}

static int64_t share(const struct foresee *f)
{
	return f->sleeps ? FORESEE_GLANCE_SHARE_NS : FORESEE_SHARE_NS;
}

bool rtx_lib_foresee_can(const struct foresee *f)
{
	uint64_t middle;

	return f->purse + share(f) >= (int64_t)rtx_lib_foresee_look(f) && length(f, &middle);
}

uint64_t rtx_lib_foresee_wake(struct foresee *f, uint64_t begun, uint64_t now)
{
	uint64_t middle, at;

	f->purse += share(f);
	if (f->purse > FORESEE_PURSE_NS)
		f->purse = FORESEE_PURSE_NS;
	if (!length(f, &middle)) {
		f->set = false;
		return 0;
	}
	if (!f->set) {
		f->set = true;
		f->ahead = least_apart(f) + FIRST_GUESS_NS;
		f->side = FORESEE_HIT;
		f->met = false;
	}
	at = begun + middle - f->ahead;
	return f->purse < (int64_t)rtx_lib_foresee_look(f) || after(at, now) < NAP_NS ? 0 : at;
}

/* An error on the same side again: the next step is twice as long. */
static int64_t step(struct foresee *f, enum foresee_end side, int64_t first)
{
	f->step = f->side == side ? 2 * f->step : first;
	if (f->step > STEP_MAX_NS)
		f->step = STEP_MAX_NS;
	f->side = side;
	return f->step;
}

/* Once an end has been met: a little nearer after each use, until it is met again. */
static int64_t creep(struct foresee *f)
{
	unsigned int doubled = f->late++ / CREEP_USES;
	int64_t by = doubled < 7 ? (int64_t)CREEP_NS << doubled : CREEP_MAX_NS;

	return by < CREEP_MAX_NS ? by : CREEP_MAX_NS;
}

void rtx_lib_foresee_note(struct foresee *f, const struct foresee_use *use)
{
	f->took[f->next] = use->stamp - use->begun;
	f->apart[f->next] = use->stamp - use->seen;
	f->next = (f->next + 1) % FORESEE_KEPT;
	if (f->kept < FORESEE_KEPT)
		f->kept++;
	f->purse -= (int64_t)use->looked;
	switch (use->end) {
	case FORESEE_SLEPT:
		return;
	case FORESEE_LATE:
		f->ahead += (uint64_t)(f->sleeps && f->met ? creep(f)
							   : step(f, FORESEE_LATE, LATE_STEP_NS));
		return;
	case FORESEE_HIT:
		f->side = FORESEE_HIT;
		f->met = true;
		f->late = 0;
		f->ahead -= f->sleeps ? use->looked + BACK_NS
				      : (uint64_t)(((int64_t)use->looked - MARGIN_NS) / 4);
		return;
	case FORESEE_VAIN:
		f->met = true;
		f->late = 0;
		f->purse -= FORESEE_SLEEP_NS;
		f->ahead -= (uint64_t)step(f, FORESEE_VAIN, VAIN_STEP_NS);
		/* no more than what is known to be needed */
		if (f->kept == FORESEE_KEPT && after(f->ahead, least_apart(f)) < 0)
			f->ahead = least_apart(f) + MARGIN_NS;
		return;
	}
}
