/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy_band.c - BAND after Gdev (Kato et al., USENIX ATC 2012) and Linux-RTXG (Fujii et al.
 * 2015): as CREDIT, and the engine is kept free for a moment before it goes to a vGPU that has used
 * more than its share.
 *
 * Good for comparisons with those systems, and with two vGPUs. With several unlike ones its shares
 * are off by points, as those of its sources are. Not work-conserving: it waits by its nature.
 *
 * Where this differs from its sources: accounts are kept for each engine, and it tests the object
 * that its papers mean.
 */
#include "account.h"
#include "policy.h"
#include "policy_queue.h"

struct band_engine {
	struct core_account *last; /* had the engine last and has not let it go to another */
	/* gets the engine at @until if no other takes it before */
	struct core_account *next;
	uint64_t until;
};

static void band_open(struct core_engine *engine)
{
	*core_books(engine, struct band_engine) = (struct band_engine){ .until = NEVER };
}

/* Over its reservation, and its credit spent. */
static bool over_band(struct core_account *account, uint64_t now)
{
	queue_settle(account, now);
	return core_books(account, struct queue_books)->credit <= 0 &&
	       core_account_used_ppm(account, now) > account->vgpu->params.min_ppm;
}

static struct core_account *band_pick(struct core_engine *engine, uint64_t now,
				      uint64_t *look_again)
{
	struct band_engine *band = core_books(engine, struct band_engine);
	struct core_account *first =
		heap_owner(heap_first(&engine->ready), struct core_account, ready);
	struct core_account *arrived = engine->arrived, *completed = engine->ended;

	if (now >= band->until && (!band->next || !band->next->waiters.count)) {
		band->until = NEVER; /* the account that it was kept for has gone */
		band->next = NULL;
	}
	if (band->until != NEVER) {
		/*
		 * Kept free for a moment: the first account to come takes it, or else the one that
		 * it was meant for.
		 */
		if (arrived && arrived->waiters.count) {
			first = arrived;
		} else if (now < band->until) {
			*look_again = band->until;
			return NULL;
		} else if (band->next && band->next->waiters.count) {
			first = band->next;
		}
		band->until = NEVER;
		band->next = NULL;
		return first;
	}
	if (completed) {
		/*
		 * The next one has had its share: leave the engine free for a moment, in case one
		 * comes that has not.
		 */
		if (first != completed &&
		    core_account_used_ppm(first, now) > first->vgpu->params.min_ppm)
			goto keep_free;
		return first;
	}
	if (arrived && arrived->waiters.count) {
		first = arrived;
		/*
		 * It had the engine last and wants it again, beyond its share, while others are
		 * about.
		 */
		if (band->last == arrived && engine->gpu->users > 1 && over_band(arrived, now))
			goto keep_free;
	}
	return first;
keep_free:
	band->last = NULL;
	band->next = first;
	band->until = add_time(now, engine->gpu->params.band_wait_ns);
	*look_again = band->until;
	return NULL;
}

static uint32_t band_permit(struct core_account *account, uint64_t now, bool *contended)
{
	const struct core_engine *engine = account->engine;

	*contended = engine->waiting > 1;
	return *contended || engine->gpu->users > 1 ? RTXG_GRANT_ONESHOT : 0;
}

static void band_ended(struct core_account *account, uint64_t now)
{
	core_books(account->engine, struct band_engine)->last = account;
	if (over_band(account, now))
		queue_to_tail(account);
}

static bool band_forget(struct core_engine *engine, const struct core_account *account)
{
	struct band_engine *band = core_books(engine, struct band_engine);

	if (band->last == account)
		band->last = NULL;
	if (band->next != account)
		return false;
	band->next = NULL;
	band->until = NEVER;
	return true;
}

static bool band_conserving(const struct rtxg_vgpu_params *params)
{
	return false;
}

const struct core_policy band_policy = {
	.summary = "Gdev's BAND: a vGPU over its share waits a moment for another",
	.reads = RTXG_READS_OVERRUN | RTXG_READS_PERIOD | RTXG_READS_WINDOW | RTXG_READS_BAND_WAIT,
	.open = band_open,
	.reset = queue_reset,
	.settle = queue_settle,
	.pick = band_pick,
	.permit = band_permit,
	.charge = queue_charge,
	.ended = band_ended,
	.forget = band_forget,
	.conserving = band_conserving,
	.view = queue_view,
};
