// SPDX-License-Identifier: MIT
/*
 * launch.c - launches and completions: the client's half of the shared page's protocol
 * (rtxg/page.h). While nothing contends none of it enters the kernel; the clock is read only when
 * the first launch goes out and the last comes back. May not decide anything: who launches is the
 * host's business.
 */
#include <string.h>

#include "errors.h"
#include "handle.h"
#include "host.h"
#include "nvrm.h"
#include "process.h"
#include "rtxg_nvrm.h"
#include "sync.h"
#include "sys.h"

/* A permit that is likely to come is looked at for so long, and so often before the clock is. */
#define READY_MOST_NS (3 * NS_PER_MS)
#define READY_LOOKS   16

/* Whether to look after the host again; `now` may be a tick behind the last look. */
static bool host_is_due(const struct rtx_gpu *h, uint64_t now)
{
	return (int64_t)(now - load_relaxed(&h->checked_ns)) >= (int64_t)HOST_CHECK_NS;
}

/* --- launching -------------------------------------------------------------------------------- */

/* The client's half of "launch" in page.h. Called with the lane locked and room for a record. */
static bool try_launch(struct rtx_gpu *h, struct task_lane *lane, struct rtxg_lane *p,
		       uint64_t *now, bool waited)
{
	uint32_t permit = load_relaxed(&p->permit);
	uint32_t before;

	if (!(permit & RTXG_PERMIT_GRANTED))
		return false;
	before = p->in_flight;
	if (!before) {
		*now = rtxg_now_ns();
		store_relaxed(&p->busy_since, *now);
	}
	store(&p->in_flight, before + 1);
	permit = load(&p->permit);
	while (permit & RTXG_PERMIT_GRANTED) {
		if (permit & RTXG_PERMIT_ONESHOT &&
		    !__atomic_compare_exchange_n(&p->permit, &permit, permit & ~RTXG_PERMIT_GRANTED,
						 false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			continue;
		/*
		 * Before the launch counts, so that a host which sees it counted does not take its
		 * want for another's.
		 */
		if (waited)
			__atomic_fetch_sub(&p->want, 1, __ATOMIC_SEQ_CST);
		store_relaxed(&p->launches, p->launches + 1);
		lane->records[lane->tail % LAUNCHES].fenced = false;
		lane->records[lane->tail++ % LAUNCHES].state = RECORD_LAUNCHED;
		return true;
	}
	/*
	 * Called back in between; the caller that fails rings afterwards, so the host learns that
	 * nothing is in flight.
	 */
	if (!before)
		store_relaxed(&p->busy_since, 0);
	store(&p->in_flight, before);
	return false;
}

/*
 * The permit is likely to come at any moment: looks at the word for as long as the host says, which
 * is some tens of microseconds, instead of sleeping, because waking up takes longer. The word then.
 */
static uint32_t stand_ready(const struct rtxg_lane *p, uint32_t permit, uint64_t until)
{
	uint64_t end = load(&p->ready_until), now = rtxg_now_ns();

	if (end > now + READY_MOST_NS)
		end = now + READY_MOST_NS;
	if (end > until)
		end = until;
	while (now < end) {
		for (int i = 0; i < READY_LOOKS; i++) {
			uint32_t word = load_relaxed(&p->permit);

			if (word != permit)
				return load(&p->permit);
			rtx_lib_relax();
		}
		now = rtxg_now_ns();
	}
	return permit;
}

static int full(unsigned int engine)
{
	return rtx_lib_failed(
		-EAGAIN,
		"%u launches are outstanding on engine %u, which is the most; sync one first",
		LAUNCHES, engine);
}

/* A thread that waits at a lane, where its word counts the threads that do: `want` or `watch`. */
struct queued {
	struct rtx_gpu *h;
	uint32_t *word;
	int before; /* may it be cancelled? */
};

static void leave_queue(void *arg)
{
	const struct queued *q = arg;

	__atomic_fetch_sub(q->word, 1, __ATOMIC_SEQ_CST);
	q->h->transport->ring(q->h);
	__atomic_fetch_sub(&q->h->users, 1, __ATOMIC_SEQ_CST);
}

/* The thread may be cancelled (pthread_cancel) while it waits, and leaves nothing then. */
static int wait_in_queue(struct queued *q, unsigned int engine, uint32_t permit, uint64_t until)
{
	int ret;

	pthread_cleanup_push(leave_queue, q);
	rtx_lib_cancel_as_before(&q->before);
	pthread_testcancel();
	ret = q->h->transport->wait(q->h, engine, permit, until);
	rtx_lib_cancel_later();
	pthread_cleanup_pop(0);
	return ret;
}

static int wait_and_launch(struct rtx_gpu *h, unsigned int engine, uint64_t until)
{
	not_cancelled();
	struct task_lane *lane = &h->lanes[engine];
	struct rtxg_lane *p = &h->page->lanes[engine];
	struct queued q = { h, &p->want, cancel_before };
	uint64_t start = rtxg_now_ns(), now = start;
	uint32_t rang_at, permit;
	int ret;

	__atomic_fetch_add(&h->users, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&p->want, 1, __ATOMIC_SEQ_CST);
	/*
	 * A permit that is there already may be gone again before this thread looks: only one that
	 * was seen without GRANTED is known to have ended.
	 */
	permit = load(&p->permit);
	rang_at = (permit >> RTXG_PERMIT_SEQ_SHIFT) - (permit & RTXG_PERMIT_GRANTED ? 1 : 0);
	h->transport->ring(h);
	for (;;) {
		bool launched = false, room = true;

		permit = load(&p->permit);

		if (load(&h->closing)) {
			ret = rtx_lib_failed(-ECANCELED, "the handle was closed by another thread");
			break;
		}
		if (permit & RTXG_PERMIT_CLOSED) {
			uint32_t why = load(&h->page->closed_errno);

			ret = rtx_lib_failed(
				why && why < 4096 ? -(int)why : -EPIPE,
				"the host has closed this task: %s",
				rtx_lib_error_name(why && why < 4096 ? (int)why : EPIPE));
			break;
		}
		if (permit & RTXG_PERMIT_GRANTED) {
			rtx_lib_lock(&lane->lock, h->generation);
			room = lane->tail - lane->head < LAUNCHES;
			if (room)
				launched = try_launch(h, lane, p, &now, true);
			rtx_lib_unlock(&lane->lock);
			if (!room) {
				ret = full(engine);
				break;
			}
			if (launched) {
				ret = 0;
				break;
			}
			/*
			 * Another thread of ours was faster, or it was called back: say again that
			 * we want it.
			 */
			rang_at = permit >> RTXG_PERMIT_SEQ_SHIFT;
			h->transport->ring(h);
			continue;
		}
		if (permit >> RTXG_PERMIT_SEQ_SHIFT != rang_at) {
			/*
			 * A permit came and went while this thread was kept from running (stopped,
			 * frozen). The host gives no other one until it knows that we go on.
			 */
			rang_at = permit >> RTXG_PERMIT_SEQ_SHIFT;
			h->transport->ring(h);
		}
		now = rtxg_now_ns();
		if (now >= until) {
			ret = rtx_lib_not_yet(-ETIMEDOUT, "no permit came in time");
			break;
		}
		if (permit & RTXG_PERMIT_READY && !rtx_lib_yield_costs_budget() &&
		    stand_ready(p, permit, until) != permit)
			continue;
		/* Bounded, because no one wakes us if the host is killed. */
		ret = wait_in_queue(&q, engine, permit,
				    until < now + HOST_CHECK_NS ? until : now + HOST_CHECK_NS);
		if (ret == -EINTR) {
			rtx_lib_failed(ret, "a signal came while waiting for the permit");
			break;
		}
		now = rtxg_now_ns();
		if (ret == -ETIMEDOUT && host_is_due(h, now))
			rtx_lib_host_check(h, now);
	}
	if (ret) {
		__atomic_fetch_sub(&p->want, 1, __ATOMIC_SEQ_CST);
		h->transport->ring(h);
	}
	now = rtxg_now_ns();
	__atomic_fetch_add(&lane->waits, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&lane->wait_ns, now - start, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&h->users, 1, __ATOMIC_SEQ_CST);
	return ret;
}

int rtx_gpu_launch_until(rtx_gpu_t h, enum rtx_engine engine, uint64_t until)
{
	struct task_lane *lane;
	struct rtxg_lane *p;
	uint64_t now = 0;
	bool room, launched = false;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	lane = &h->lanes[engine];
	p = &h->page->lanes[engine];
	rtx_lib_lock(&lane->lock, h->generation);
	room = lane->tail - lane->head < LAUNCHES;
	if (room)
		launched = try_launch(h, lane, p, &now, false);
	rtx_lib_unlock(&lane->lock);
	if (!room)
		return full(engine);
	if (!launched) {
		if (until)
			return wait_and_launch(h, engine, until);
		/*
		 * Without waiting for others; but the host must be asked, and that takes a moment.
		 */
		ret = wait_and_launch(h, engine, rtxg_now_ns() + HOST_ANSWER_NS);
		return ret == -ETIMEDOUT ? rtx_lib_not_yet(-EAGAIN, "others use the engine now")
					 : ret;
	}
	/*
	 * A program that always has something in flight would otherwise never learn of another
	 * host.
	 */
	if (!now)
		now = rtxg_tick_ns();
	if (host_is_due(h, now))
		rtx_lib_host_check(h, now);
	return 0;
}

int rtx_gpu_launch(rtx_gpu_t h, enum rtx_engine engine)
{
	return rtx_gpu_launch_until(h, engine, NEVER);
}

/* --- completing ------------------------------------------------------------------------------- */

/*
 * The client's half of "complete" in page.h. Called with the lane locked; returns whether to ring.
 */
static bool complete_one(struct rtxg_lane *p)
{
	uint32_t left = p->in_flight - 1, permit;

	if (left) {
		store(&p->in_flight, left);
		return false;
	}
	store_relaxed(&p->busy_ns, p->busy_ns + (rtxg_now_ns() - p->busy_since));
	store_relaxed(&p->busy_since, 0);
	store_relaxed(&p->completions, p->completions + 1);
	store(&p->in_flight, 0);
	permit = load(&p->permit);
	return !(permit & RTXG_PERMIT_GRANTED) || permit & RTXG_PERMIT_REPORT;
}

/*
 * Ends the record at that position and counts its launch as complete. Called with the lane locked;
 * returns whether to ring.
 */
static bool finish_record(struct rtx_gpu *h, unsigned int engine, uint32_t at, uint64_t device_ns)
{
	struct task_lane *lane = &h->lanes[engine];
	struct rtxg_lane *p = &h->page->lanes[engine];

	lane->records[at % LAUNCHES].state = RECORD_DONE;
	/* before in_flight, as page.h says */
	if (lane->records[at % LAUNCHES].fenced)
		store(&p->fenced, p->fenced - 1);
	while (lane->head != lane->tail &&
	       lane->records[lane->head % LAUNCHES].state == RECORD_DONE)
		lane->head++;
	/* The first record is in the processor's cache. */
	if (lane->head == lane->tail)
		lane->head = lane->tail = 0;
	if (device_ns)
		__atomic_fetch_add(&p->device_ns, device_ns, __ATOMIC_RELAXED);
	return complete_one(p);
}

/*
 * The oldest launch that no sync waits for: its position, lane->tail if there is none. Called with
 * the lane locked.
 */
static uint32_t oldest_unsynced(const struct task_lane *lane)
{
	uint32_t at;

	for (at = lane->head; at != lane->tail; at++)
		if (lane->records[at % LAUNCHES].state < RECORD_SYNCING)
			break;
	return at;
}

static int nothing_outstanding(unsigned int engine, const char *call)
{
	return rtx_lib_failed(
		-EPERM, "nothing is outstanding on engine %u: %s comes after launch, once for each",
		engine, call);
}

/* Others wait for that, so no thread is cancelled between the end of its launch and the bell. */
static void ring_surely(struct rtx_gpu *h)
{
	not_cancelled();
	h->transport->ring(h);
}

int rtx_gpu_complete(rtx_gpu_t h, enum rtx_engine engine, uint64_t device_ns)
{
	struct task_lane *lane;
	bool ring = false, found;
	uint32_t at;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	lane = &h->lanes[engine];
	rtx_lib_lock(&lane->lock, h->generation);
	at = oldest_unsynced(lane);
	found = at != lane->tail;
	if (found)
		ring = finish_record(h, engine, at, device_ns);
	rtx_lib_unlock(&lane->lock);
	if (ring)
		ring_surely(h);
	return found ? 0 : nothing_outstanding(engine, "complete");
}

int rtx_gpu_account(rtx_gpu_t h, enum rtx_engine engine, uint64_t device_ns)
{
	int ret = rtx_lib_check_handle(h, engine);

	if (!ret)
		__atomic_fetch_add(&h->page->lanes[engine].device_ns, device_ns, __ATOMIC_RELAXED);
	return ret;
}

/* Which timeline it is: one that is opened later may have the same handle. */
static uint64_t opened_of(const struct rtx_gpu_notify *how)
{
	return how->timeline ? rtx_lib_timeline_opened(how->timeline) : 0;
}

/*
 * The client's half of "fence" in page.h: a host that sees interrupts then knows by itself when the
 * launch has completed. It looks at one word for each lane. Called with the lane locked.
 */
static void fence_record(struct rtx_gpu *h, unsigned int engine, struct record *record)
{
	struct task_lane *lane = &h->lanes[engine];
	struct rtxg_lane *p = &h->page->lanes[engine];
	const struct rtx_gpu_notify *how = &record->how;
	uint64_t of = record->of;

	if (!h->transport->fence || !how->word || !load_relaxed(&h->managed))
		return;
	/* One that was opened after another was closed may have its word where that one's was. */
	if (lane->fence != how->word || lane->fence_of != of ||
	    lane->fence_host != load_relaxed(&h->host_generation)) {
		int ret;

		if (p->fenced)
			return;
		ret = h->transport->fence(h, engine, how);
		if (ret)
			rtx_lib_forget_error();
		if (ret == -EAGAIN)
			return;
		lane->fence = how->word;
		lane->fence_of = of;
		lane->fence_host = load_relaxed(&h->host_generation);
		lane->fence_seen = !ret;
		store_relaxed(&p->fence, how->value);
	}
	if (!lane->fence_seen)
		return;
	if ((int32_t)(how->value - (uint32_t)p->fence) > 0)
		store(&p->fence, how->value);
	store(&p->fenced, p->fenced + 1);
	record->fenced = true;
	/* The host is told by the interrupt, also of a launch for which its task only looks. */
	if (how->timeline && rtx_lib_timeline_ask(how->timeline, how->value))
		rtx_lib_forget_error();
}

int rtx_gpu_notify(rtx_gpu_t h, enum rtx_engine engine, const struct rtx_gpu_notify *notify)
{
	not_cancelled();
	struct task_lane *lane;
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	uint64_t of;
	uint32_t at;
	bool launched = false;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	ret = rtx_lib_sync_check(notify, &how, &of);
	if (ret)
		return ret;
	lane = &h->lanes[engine];
	rtx_lib_lock(&lane->lock, h->generation);
	for (at = lane->head; at != lane->tail; at++) {
		struct record *record = &lane->records[at % LAUNCHES];

		launched |= record->state != RECORD_DONE;
		if (record->state == RECORD_LAUNCHED)
			break;
	}
	if (at != lane->tail) {
		lane->records[at % LAUNCHES].how = how;
		lane->records[at % LAUNCHES].of = of;
		lane->records[at % LAUNCHES].state = RECORD_NOTIFIED;
		fence_record(h, engine, &lane->records[at % LAUNCHES]);
	}
	ret = at != lane->tail ? 0 : launched ? -EALREADY : -EPERM;
	rtx_lib_unlock(&lane->lock);
	if (ret == -EALREADY)
		return rtx_lib_failed(ret, "every launch on engine %u has its notify already",
				      engine);
	if (ret)
		return rtx_lib_failed(
			ret, "nothing is outstanding on engine %u: notify comes after launch",
			engine);
	return 0;
}

/* A launch that a thread waits for. */
struct awaited {
	struct rtx_gpu *h;
	unsigned int engine;
	uint32_t at;
	uint64_t of;
	rtx_timeline_t timeline; /* which the thread is in; NULL: it tells otherwise */
};

static void leave_timeline(const struct awaited *a)
{
	if (a->timeline)
		rtx_lib_timeline_leave(a->timeline);
}

/* The thread is cancelled (pthread_cancel): others may wait for the launch, or close the handle. */
static void give_up(void *arg)
{
	const struct awaited *a = arg;
	struct task_lane *lane = &a->h->lanes[a->engine];

	leave_timeline(a);
	rtx_lib_lock(&lane->lock, a->h->generation);
	lane->records[a->at % LAUNCHES].state = RECORD_NOTIFIED;
	rtx_lib_unlock(&lane->lock);
	__atomic_fetch_sub(&a->h->users, 1, __ATOMIC_SEQ_CST);
}

static int wait_for(struct awaited *a, const struct rtx_gpu_notify *how, bool fenced)
{
	int ret = a->timeline ? rtx_lib_timeline_enter(a->timeline) : 0;

	if (ret)
		return ret;
	pthread_cleanup_push(give_up, a);
	/* No other has its place from here on. The word of one may never have that value. */
	if (a->of != opened_of(how))
		ret = rtx_lib_failed(-EBADF, "the launch's timeline is closed, and another one is "
					     "open in its place");
	else
		ret = rtx_lib_sync_wait(a->h, a->engine, how, fenced);
	pthread_cleanup_pop(0);
	leave_timeline(a);
	return ret;
}

/* Waits for a launch whose record is in state RECORD_SYNCING, and finishes it. */
static int wait_and_finish(struct rtx_gpu *h, unsigned int engine, uint32_t at, uint64_t of,
			   const struct rtx_gpu_notify *how, bool fenced)
{
	struct task_lane *lane = &h->lanes[engine];
	bool ring = false;
	int ret;

	__atomic_fetch_add(&h->users, 1, __ATOMIC_SEQ_CST);
	ret = wait_for(&(struct awaited){ h, engine, at, of, how->timeline }, how, fenced);
	not_cancelled(); /* the bell is rung, and `users` counted, for others */
	rtx_lib_lock(&lane->lock, h->generation);
	/*
	 * Interrupted, or not in time: the work goes on, so the launch stays outstanding. Any other
	 * failure of the caller's function (a GPU that has gone) ends it: an engine must not stay
	 * blocked by work that cannot be waited for.
	 */
	if (ret == -EINTR || ret == -ECANCELED || (ret == -ETIMEDOUT && how->until_ns))
		lane->records[at % LAUNCHES].state = RECORD_NOTIFIED;
	else
		ring = finish_record(h, engine, at, 0);
	rtx_lib_unlock(&lane->lock);
	if (ring)
		h->transport->ring(h);
	__atomic_fetch_sub(&h->users, 1, __ATOMIC_SEQ_CST);
	return ret;
}

int rtx_gpu_sync(rtx_gpu_t h, enum rtx_engine engine)
{
	bool ring = false, found, waits = false, fenced = false;
	struct rtx_gpu_notify how;
	struct task_lane *lane;
	struct record *record;
	uint64_t of = 0;
	uint32_t at;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	lane = &h->lanes[engine];
	rtx_lib_lock(&lane->lock, h->generation);
	at = oldest_unsynced(lane);
	found = at != lane->tail;
	record = &lane->records[at % LAUNCHES];
	if (found && record->state == RECORD_NOTIFIED && record->how.how != RTX_SYNC_CALLER) {
		/* Other threads may launch, notify and sync meanwhile: this launch is ours. */
		waits = true;
		how = record->how;
		fenced = record->fenced;
		of = record->of;
		record->state = RECORD_SYNCING;
	} else if (found) {
		ring = finish_record(h, engine, at, 0);
	}
	rtx_lib_unlock(&lane->lock);
	if (waits)
		return wait_and_finish(h, engine, at, of, &how, fenced);
	if (ring)
		ring_surely(h);
	return found ? 0 : nothing_outstanding(engine, "sync");
}

/* --- looking ---------------------------------------------------------------------------------- */

bool rtx_gpu_revoked(rtx_gpu_t h, enum rtx_engine engine)
{
	if (rtx_lib_check_handle(h, engine))
		return true;
	return !(load(&h->page->lanes[engine].permit) & RTXG_PERMIT_GRANTED);
}

bool rtx_gpu_awaited(rtx_gpu_t h, enum rtx_engine engine)
{
	uint32_t permit;

	if (rtx_lib_check_handle(h, engine))
		return true;
	permit = load(&h->page->lanes[engine].permit);
	return !(permit & RTXG_PERMIT_GRANTED) || permit & RTXG_PERMIT_REPORT;
}

int rtx_gpu_wait_revoked(rtx_gpu_t h, enum rtx_engine engine, uint64_t until)
{
	not_cancelled();
	struct rtxg_lane *p;
	struct queued q;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	p = &h->page->lanes[engine];
	q = (struct queued){ h, &p->watch, cancel_before };
	__atomic_fetch_add(&h->users, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&p->watch, 1, __ATOMIC_SEQ_CST);
	for (;;) {
		uint32_t permit = load(&p->permit);
		uint64_t now;

		if (!(permit & RTXG_PERMIT_GRANTED)) {
			ret = 0;
			break;
		}
		now = rtxg_now_ns();
		if (load(&h->closing)) {
			ret = rtx_lib_failed(-ECANCELED, "the handle was closed by another thread");
			break;
		}
		if (now >= until) {
			ret = rtx_lib_not_yet(-ETIMEDOUT, "the permit was not called back in time");
			break;
		}
		/* A host that was killed calls nothing back. */
		if (host_is_due(h, now))
			rtx_lib_host_check(h, now);
		ret = wait_in_queue(&q, engine, permit,
				    until < now + HOST_CHECK_NS ? until : now + HOST_CHECK_NS);
		if (ret == -EINTR) {
			rtx_lib_failed(ret, "a signal came while waiting");
			break;
		}
	}
	__atomic_fetch_sub(&p->watch, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_sub(&h->users, 1, __ATOMIC_SEQ_CST);
	return ret;
}

int rtx_gpu_stats(rtx_gpu_t h, enum rtx_engine engine, struct rtx_gpu_stats *stats)
{
	struct rtx_gpu_stats full_stats = { 0 };
	struct rtxg_lane *p;
	size_t size;
	int ret = rtx_lib_check_handle(h, engine);

	if (ret)
		return ret;
	if (!stats || stats->size < sizeof(size_t) + sizeof(uint64_t))
		return rtx_lib_failed(
			-EINVAL, "stats.size is not set; set it to sizeof(struct rtx_gpu_stats)");
	size = stats->size;
	p = &h->page->lanes[engine];
	rtx_lib_lock(&h->lanes[engine].lock, h->generation);
	full_stats.size = size;
	full_stats.launches = p->launches;
	full_stats.waits = load_relaxed(&h->lanes[engine].waits);
	full_stats.wait_ns = load_relaxed(&h->lanes[engine].wait_ns);
	full_stats.busy_ns = p->busy_ns + (p->in_flight ? rtxg_now_ns() - p->busy_since : 0);
	full_stats.device_ns = load_relaxed(&p->device_ns);
	rtx_lib_unlock(&h->lanes[engine].lock);
	if (size > sizeof(full_stats))
		memset((char *)stats + sizeof(full_stats), 0, size - sizeof(full_stats));
	memcpy(stats, &full_stats, size < sizeof(full_stats) ? size : sizeof(full_stats));
	return 0;
}

int rtx_gpu_ungated(rtx_gpu_t h)
{
	int ret = rtx_lib_check_handle(h, RTX_COMPUTE);

	if (!ret)
		__atomic_fetch_or(&h->page->client_flags, RTXG_PAGE_C_UNGATED, __ATOMIC_RELAXED);
	return ret;
}

bool rtx_gpu_managed(rtx_gpu_t h)
{
	return !rtx_lib_check_handle(h, 0) && load_relaxed(&h->managed);
}
