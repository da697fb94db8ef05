// SPDX-License-Identifier: MIT
/*
 * nvrm_wait.c - waiting for a timeline's value (rtxg_nvrm.h). May not: speak to the driver but to
 * sleep, or open and close anything.
 *
 * Of a word that the GPU writes nothing is believed but its value: a waiter reads it again
 * after each interrupt and after each LOOK_AGAIN_MS, so that a lost interrupt costs time and
 * nothing else.
 */
#include <sched.h>
#include <time.h>

#include "cpu.h"
#include "errors.h"
#include "foresee.h"
#include "nvrm.h"
#include "nvrm_gpu.h"
#include "nvrm_timeline.h"
#include "rtxg_nvrm.h"
#include "sys.h"

#define LOOK_AGAIN_MS	10
#define ASK_AFTER_NS	(1000 * NS_PER_MS) /* without progress: does the GPU still live? */
#define DEADLINE_NAP_NS (50 * 1000ull)

/* A wait of this thread: what it was told, and what it has seen. */
struct wait {
	struct rtx_timeline *line;
	uint32_t value, seen;
	uint64_t until;
	const bool *stop;

	uint32_t place; /* in the channel's ring, if this wait is to teach us something */
	uint64_t payload;
	uint64_t wake; /* when to look for the end that is foreseen; 0: not */
	uint64_t look; /* for how long at most */
	struct foresee_use use;

	/* What let_go() gives back. */
	bool leads; /* it is the one that sleeps in the driver */
	int slack;  /* of this thread's timers; 0: nothing */
};

/*
 * A word that has gone back may have passed the value meanwhile, and then no one would write it
 * again.
 */
int rtx_lib_timeline_went_back(rtx_timeline_t t, uint32_t *seen)
{
	uint32_t word = timeline_word(t), before = *seen;

	*seen = word;
	if ((int32_t)(word - before) >= 0)
		return 0;
	return rtx_lib_failed(
		-ERANGE,
		"the word of timeline %u went back from %u to %u; numbers go forward, "
		"and each stream has a timeline of its own",
		t->number, before, word);
}

static int ended(const struct rtx_timeline *t, const bool *stop, uint64_t now, uint64_t until)
{
	pthread_testcancel(); /* not every way to wait has such a place by itself */
	if (load(&t->closing) || (stop && load(stop)))
		return rtx_lib_failed(-ECANCELED, "timeline %u was closed by another thread",
				      t->number);
	if (now >= until)
		return rtx_lib_not_yet(-ETIMEDOUT, "the word did not reach its value in time");
	return 0;
}

static int interrupted(void)
{
	return rtx_lib_failed(-EINTR, "a signal came while waiting for the GPU");
}

/* FENCE: the word alone. */
static int wait_looking(struct rtx_timeline *t, struct wait *w)
{
	bool naps = rtx_lib_yield_costs_budget();
	uint64_t asked = timeline_now(t);

	while (!timeline_reached(t, w->value)) {
		uint64_t now;
		int ret;

		/* Looking costs less than a clock: some looks to each. */
		for (int i = 0; i < 64 && !timeline_reached(t, w->value); i++)
			if (!naps)
				rtx_lib_relax();
		if (timeline_reached(t, w->value))
			break;
		if (naps && clock_nanosleep(CLOCK_MONOTONIC, 0,
					    &(struct timespec){ .tv_nsec = DEADLINE_NAP_NS },
					    NULL) == EINTR)
			return interrupted();
		now = timeline_now(t);
		ret = ended(t, w->stop, now, w->until);
		if (!ret)
			ret = rtx_lib_timeline_went_back(t, &w->seen);
		if (!ret && now - asked > ASK_AFTER_NS) {
			asked = now;
			ret = rtx_lib_nvrm_alive(t->nvrm->gpu);
		}
		if (ret)
			return ret;
		if (!naps)
			sched_yield();
	}
	return 0;
}

/* Others that wait see to it that one of them sleeps in the driver. */
static void stop_leading(struct rtx_timeline *t, struct wait *w)
{
	w->leads = false;
	store(&t->leader, 0);
	__atomic_fetch_add(&t->turn, 1, __ATOMIC_SEQ_CST);
	if (load(&t->users) > 1)
		rtx_lib_futex_wake(&t->turn, false);
}

/* One sleep until an interrupt, another's wake-up, or the time to look again. */
static int sleep_once(struct rtx_timeline *t, struct wait *w, uint64_t now, uint64_t until,
		      bool *woken)
{
	uint32_t turn = load(&t->turn);
	int ret;

	if (__atomic_exchange_n(&t->leader, 1, __ATOMIC_SEQ_CST)) {
		uint64_t again = now + LOOK_AGAIN_MS * NS_PER_MS;

		ret = rtx_lib_futex_wait(&t->turn, turn, until < again ? until : again, false);
		*woken = !ret;
		return ret == -EINTR ? ret : 0;
	}
	w->leads = true;
	ret = 1;
	if (!load(&t->closing)) {
		const struct nv_sys *sys = t->nvrm->gpu->sys;
		uint64_t again = LOOK_AGAIN_MS * NS_PER_MS;

		ret = sys->poll(sys->ctx, t->channel.event,
				until - now < again ? until - now : again);
	}
	stop_leading(t, w);
	if (ret > 0)
		__atomic_fetch_add(&t->wakes, 1, __ATOMIC_RELAXED);
	*woken = ret > 0;
	return ret < 0 ? ret : 0;
}

/* Asks when to look for the end of this wait. Called with t->lock held. */
static void foresee(struct rtx_timeline *t, struct wait *w, uint64_t now)
{
	uint32_t place = (t->channel.put + NVRM_ENTRIES - 1) % NVRM_ENTRIES;

	rtx_lib_timeline_learn(t);
	t->last_payload = 0;
	/* Of several, one sleeps in the driver and wakes the others: none of them looks. */
	if (load(&t->users) > 1 || !t->any_armed || t->armed != w->value)
		return;
	w->use.begun = t->places[place].begun;
	w->place = place;
	w->payload = t->places[place].payload;
	w->wake = rtx_lib_foresee_wake(&t->foresee, w->use.begun, now);
	w->look = rtx_lib_foresee_look(&t->foresee);
	w->use.end = w->wake ? FORESEE_LATE : FORESEE_SLEPT;
}

/* The ends of the sleeps of this wait count: once for all of them, since each change is a call. */
static void be_exact(struct wait *w)
{
	int slack = rtx_lib_timer_slack(0);

	if (slack > 1) {
		rtx_lib_timer_slack(1);
		w->slack = slack;
	}
}

/* Looks at the word, for so long as a wake-up would cost. */
static void look(struct rtx_timeline *t, struct wait *w, uint64_t from)
{
	uint64_t end = from + w->look, now = from;

	w->wake = 0;
	__atomic_fetch_add(&t->looks, 1, __ATOMIC_RELAXED);
	while (!timeline_reached(t, w->value) && now < end && now < w->until) {
		rtx_lib_relax();
		now = timeline_now(t);
	}
	w->use.looked = now - from;
	w->use.end = timeline_reached(t, w->value) ? FORESEE_HIT : FORESEE_VAIN;
	if (w->use.end == FORESEE_HIT)
		__atomic_fetch_add(&t->hits, 1, __ATOMIC_RELAXED);
}

static void remember(struct rtx_timeline *t, struct wait *w)
{
	if (!w->payload)
		return;
	w->use.seen = timeline_now(t);
	pthread_mutex_lock(&t->lock);
	t->last = w->use;
	t->last_place = w->place;
	t->last_payload = w->payload;
	pthread_mutex_unlock(&t->lock);
}

/* Until it is time to look: no interrupt was asked for, and those of earlier uses are not heard. */
static int nap(const struct rtx_timeline *t, uint64_t now, uint64_t until)
{
	const struct nv_sys *sys = t->nvrm->gpu->sys;
	uint64_t again = LOOK_AGAIN_MS * NS_PER_MS;

	return sys->poll(sys->ctx, -1, until - now < again ? until - now : again);
}

/*
 * Arms the value. *quiet: it raises no interrupt. What is refused is no error of the wait. -EAGAIN:
 * those that are armed wake us, too, and then there is a place. -ERANGE: a later value is armed, so
 * look.
 */
static int prepare(struct rtx_timeline *t, struct wait *w, bool first, uint64_t now, bool *quiet)
{
	not_cancelled();
	int ret;

	pthread_mutex_lock(&t->lock);
	ret = rtx_lib_timeline_event(t);
	if (!ret) {
		rtx_lib_timeline_arm(t, w->value, first ? rtx_lib_timeline_quiet(t) : w->wake);
		if (first && t->foresees)
			foresee(t, w, now);
		if (!w->wake)
			rtx_lib_timeline_loud(t);
	}
	*quiet = w->wake && t->quiet;
	pthread_mutex_unlock(&t->lock);
	return ret;
}

/* NOTIFY: sleeps. */
static int wait_asleep(struct rtx_timeline *t, struct wait *w)
{
	uint64_t asked = timeline_now(t);
	bool woken = true, first = true, quiet;

	while (!timeline_reached(t, w->value)) {
		uint64_t now = timeline_now(t), until;
		int ret = ended(t, w->stop, now, w->until);

		if (!ret)
			ret = rtx_lib_timeline_went_back(t, &w->seen);
		if (!ret) {
			ret = prepare(t, w, first, now, &quiet);
			if (ret)
				return ret;
			if (first && w->wake)
				be_exact(w);
			first = false;
			/* If it came meanwhile, no interrupt was asked for to end a sleep. */
			if (timeline_reached(t, w->value)) {
				woken = true;
				break;
			}
			if (w->wake && now >= w->wake) {
				look(t, w, now);
				woken = true;
				continue;
			}
			woken = false;
			until = w->wake && w->wake < w->until ? w->wake : w->until;
			ret = quiet ? nap(t, now, until) : sleep_once(t, w, now, until, &woken);
			if (ret == -EINTR)
				return interrupted();
			if (ret == -ENODEV && rtx_lib_nvrm_alive(t->nvrm->gpu))
				return ret; /* which has its words */
			if (ret)
				return rtx_lib_failed(ret,
						      "waiting for GPU %s's interrupt failed: %s",
						      t->nvrm->gpu->name, rtx_lib_error_name(-ret));
			if (!woken && now - asked > ASK_AFTER_NS) {
				asked = now;
				ret = rtx_lib_nvrm_alive(t->nvrm->gpu);
			}
		}
		if (ret)
			return ret;
	}
	remember(t, w);
	if (!woken && w->use.end != FORESEE_LATE)
		__atomic_fetch_add(&t->missed, 1, __ATOMIC_RELAXED);
	return 0;
}

/* However a wait ends, and by pthread_cancel() too: no other waits for this thread. */
static void let_go(void *arg)
{
	struct wait *w = arg;

	if (w->leads)
		stop_leading(w->line, w);
	if (w->slack)
		rtx_lib_timer_slack(w->slack);
	rtx_lib_cpu_waits_for_gpu(false);
	__atomic_fetch_sub(&w->line->users, 1, __ATOMIC_SEQ_CST);
	rtx_lib_timeline_leave(w->line);
}

/* Leaves the timeline. */
static int wait_and_leave(struct rtx_timeline *t, struct wait *w, enum rtx_sync how)
{
	int ret;

	__atomic_fetch_add(&t->users, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&t->waits, 1, __ATOMIC_RELAXED);
	pthread_cleanup_push(let_go, w);
	/* its time asleep is the GPU's, too */
	rtx_lib_cpu_waits_for_gpu(true);
	ret = how == RTX_SYNC_FENCE ? wait_looking(t, w) : wait_asleep(t, w);
	pthread_cleanup_pop(1);
	return ret;
}

int rtx_lib_timeline_wait(rtx_timeline_t t, uint32_t value, enum rtx_sync how, uint64_t until,
			  const bool *stop)
{
	struct wait w = { .line = t, .value = value, .until = until, .stop = stop };
	int ret = rtx_lib_timeline_enter(t);

	if (ret)
		return ret;
	w.seen = timeline_word(t);
	if ((int32_t)(w.seen - value) >= 0) {
		ret = 0;
	} else if (how != RTX_SYNC_FENCE && how != RTX_SYNC_NOTIFY) {
		ret = rtx_lib_failed(-EINVAL,
				     "a timeline is waited for by RTX_SYNC_FENCE or "
				     "RTX_SYNC_NOTIFY, not %d",
				     (int)how);
	} else {
		return wait_and_leave(t, &w, how);
	}
	rtx_lib_timeline_leave(t);
	return ret;
}

int rtx_lib_timeline_alive(rtx_timeline_t t)
{
	return rtx_lib_nvrm_alive(t->nvrm->gpu);
}

int rtx_timeline_wait(rtx_timeline_t t, uint32_t value, enum rtx_sync how, uint64_t until)
{
	rtx_lib_forget_error();
	return rtx_lib_timeline_wait(t, value, how, until, NULL);
}
