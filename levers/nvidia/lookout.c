// SPDX-License-Identifier: MIT
/*
 * lookout.c - see lookout.h.
 */
#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include "demand.h"
#include "lookout.h"
#include "state.h"

/*
 * A call that lasts longer is watched. An ordinary one is not, for it is over before what is seen
 * could matter: the policy takes a look to be in time that comes 500 us later than it was to.
 */
#define PATIENCE_NS 1200000ull
#define STACK_BYTES (64u << 10) /* all of it is locked in memory */

static void arm(const struct nv_lookout *o, uint64_t at)
{
	struct itimerspec t = { .it_value = { .tv_sec = (time_t)(at / 1000000000u),
					      .tv_nsec = (long)(at % 1000000000u) } };

	timerfd_settime(o->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

/* Around each call of the driver, in the lever's thread. */
static void in_call(void *ctx, bool begins)
{
	struct lever_nvidia *l = ctx;
	struct nv_lookout *o = &l->lookout;

	if (begins) {
		o->armed = o->wanted && l->enabled;
		if (o->armed)
			arm(o, nv_now(l) + PATIENCE_NS);
		pthread_mutex_unlock(&o->lent);
		return;
	}
	pthread_mutex_lock(&o->lent);
	if (o->armed)
		arm(o, 0);
	o->armed = false;
}

uint64_t nv_lookout_pass(struct lever_nvidia *l)
{
	struct nv_lookout *o = &l->lookout;

	for (uint32_t k = 0; k < l->gpus && l->enabled; k++) {
		struct nv_gpu *g = &l->gpu[k];

		for (uint32_t i = 0; i < g->high && !g->lost; i++) {
			/* What cannot be told is not looked at: then it comes late. */
			if (o->count == NV_LOOKOUT_ROOM)
				return UINT64_MAX;
			o->count += nv_demand_glance(l, g, i, &o->seen[o->into][o->count]);
		}
	}
	return nv_demand_next_glance(l);
}

/* The same urgency as the thread that is kept. */
static void keep_up(const struct nv_lookout *o)
{
	struct sched_param own, leads;
	int policy = sched_getscheduler(o->leads);

	if (policy < 0 || sched_getparam(o->leads, &leads) || sched_getparam(0, &own) ||
	    (policy == sched_getscheduler(0) && own.sched_priority == leads.sched_priority))
		return;
	sched_setscheduler(0, policy, &leads);
}

/* Looks as long as the lever's thread is in a call. */
static void look_out(struct lever_nvidia *l)
{
	struct nv_lookout *o = &l->lookout;
	uint64_t next;

	keep_up(o);
	while (!pthread_mutex_trylock(&o->lent)) {
		struct timespec t;

		/* A call that has ended meanwhile is none, and one that has just begun is short. */
		next = o->armed ? nv_lookout_pass(l) : UINT64_MAX;
		pthread_mutex_unlock(&o->lent);
		if (next == UINT64_MAX)
			return;
		t.tv_sec = (time_t)(next / 1000000000u);
		t.tv_nsec = (long)(next % 1000000000u);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	}
}

static void *lookout(void *arg)
{
	struct lever_nvidia *l = arg;
	uint64_t times;

	while (!__atomic_load_n(&l->lookout.ends, __ATOMIC_ACQUIRE)) {
		if (read(l->lookout.timer, &times, sizeof(times)) < 0 && errno != EINTR)
			break;
		if (!__atomic_load_n(&l->lookout.ends, __ATOMIC_ACQUIRE))
			look_out(l);
	}
	return NULL;
}

int nv_lookout_start(struct lever_nvidia *l)
{
	struct nv_lookout *o = &l->lookout;
	pthread_mutexattr_t inherit;
	pthread_attr_t attr;
	int err;

	o->leads = (int)syscall(SYS_gettid);
	o->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	if (o->timer < 0)
		return -errno;
	pthread_mutexattr_init(&inherit);
	pthread_mutexattr_setprotocol(&inherit, PTHREAD_PRIO_INHERIT);
	err = pthread_mutex_init(&o->lent, &inherit);
	pthread_mutexattr_destroy(&inherit);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (!err) {
		pthread_mutex_lock(&o->lent);
		err = pthread_create(&o->thread, &attr, lookout, l);
	}
	pthread_attr_destroy(&attr);
	if (err) {
		close(o->timer);
		return -err;
	}
	o->runs = true;
	l->rm.in_call_ctx = l;
	l->rm.in_call = in_call;
	return 0;
}

void nv_lookout_stop(struct lever_nvidia *l)
{
	struct nv_lookout *o = &l->lookout;

	if (!o->runs)
		return;
	l->rm.in_call = NULL;
	__atomic_store_n(&o->ends, true, __ATOMIC_RELEASE);
	arm(o, 1);
	pthread_join(o->thread, NULL);
	pthread_mutex_unlock(&o->lent);
	pthread_mutex_destroy(&o->lent);
	close(o->timer);
	o->runs = false;
}
