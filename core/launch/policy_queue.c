/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy_queue.c - FIFO, CREDIT and BAND after Gdev (Kato et al., USENIX ATC 2012) and Linux-RTXG
 * (Fujii et al. 2015): a list of vGPUs, the first with a waiter is next, and who has used more than
 * its share goes to the tail.
 *
 * Where this differs from their sources: accounts are kept for each engine, credit is a function of
 * time and so exact without a ticking thread, and BAND tests the object that its papers mean.
 */
#include "account.h"
#include "policy.h"

static int64_t credit_per_tick(const struct core_account *account)
{
	return (int64_t)(account->vgpu->gpu->params.period_ns * account->vgpu->params.min_ppm /
			 RTXG_PPM);
}

static int64_t clamp_credit(int64_t credit, int64_t threshold)
{
	return credit > threshold ? threshold : credit < -threshold ? -threshold : credit;
}

/*
 * Every period: credit += T * bw / 100, and a credit that leaves [-T, T] becomes 0 (FORGIVE) or
 * stays at the border (CHARGE). Nobody looks at a credit in between, so all ticks since the last
 * look are done at once: below the border it grows by a constant; after a reset it repeats 0, c,
 * 2c, ... up to T with a fixed length.
 */
void queue_credit(struct core_account *account, uint64_t now)
{
	const struct rtxg_gpu_params *params = &account->vgpu->gpu->params;
	int64_t threshold = (int64_t)params->period_ns;
	int64_t add = credit_per_tick(account);
	uint64_t tick = (now - account->vgpu->gpu->epoch_ns) / params->period_ns;
	uint64_t ticks = tick - account->credit_tick;

	account->credit_tick = tick;
	if (!ticks)
		return;
	if (params->overrun == RTXG_OVERRUN_CHARGE) {
		/*
		 * The first tick may find the credit far outside; after it, it only grows until it
		 * meets the threshold.
		 */
		account->credit = clamp_credit(account->credit + add, threshold);
		ticks = min_u64(ticks - 1, add ? (uint64_t)(2 * threshold / add + 1) : 0);
		account->credit = clamp_credit(account->credit + (int64_t)ticks * add, threshold);
		return;
	}
	/* The first tick may find the credit far outside. */
	account->credit += add;
	ticks--;
	if (account->credit > threshold || account->credit < -threshold)
		account->credit = 0;
	if (!ticks || !add)
		return;
	if (account->credit + (int64_t)min_u64(ticks, (uint64_t)(2 * threshold / add + 1)) * add <=
	    threshold) {
		account->credit += (int64_t)ticks * add;
		return;
	}
	/* the tick that resets it included */
	ticks -= (uint64_t)((threshold - account->credit) / add) + 1;
	account->credit = (int64_t)(ticks % ((uint64_t)(threshold / add) + 1)) * add;
}

void queue_charge(struct core_account *account, uint64_t charge, uint64_t now)
{
	queue_credit(account, now);
	account->credit -= (int64_t)min_u64(charge, INT64_MAX / 4);
	if (account->credit < -(INT64_MAX / 4))
		account->credit = -(INT64_MAX / 4);
}

/* BAND: over its reservation, and its credit spent. */
static bool over_band(struct core_account *account, uint64_t now)
{
	queue_credit(account, now);
	return account->credit <= 0 &&
	       core_account_used_ppm(account, now) > account->vgpu->params.min_ppm;
}

void queue_completed(struct core_account *account, uint64_t now)
{
	bool to_tail;

	switch (account->vgpu->gpu->params.policy) {
	case RTXG_GPU_FIFO:
		to_tail = true;
		break;
	case RTXG_GPU_CREDIT:
		queue_credit(account, now);
		to_tail = account->credit <= 0;
		break;
	case RTXG_GPU_BAND:
		to_tail = over_band(account, now);
		break;
	default:
		to_tail = false;
	}
	if (to_tail)
		/* lane_release places it anew */
		account->order = account->engine->next_order++;
}

static struct core_account *band_pick(struct core_engine *engine, uint64_t now,
				      uint64_t *wait_until)
{
	struct core_account *first =
		heap_owner(heap_first(&engine->ready), struct core_account, ready);
	struct core_account *arrived = engine->arrived, *completed = engine->completed;

	if (now >= engine->band_until &&
	    (!engine->band_next || !engine->band_next->waiters.count)) {
		engine->band_until = NEVER; /* whom it was kept for has gone */
		engine->band_next = NULL;
	}
	if (engine->band_until != NEVER) {
		/*
		 * Kept free for a moment: whoever comes takes it; if nobody does, the one it was
		 * meant for.
		 */
		if (arrived && arrived->waiters.count) {
			first = arrived;
		} else if (now < engine->band_until) {
			*wait_until = engine->band_until;
			return NULL;
		} else if (engine->band_next && engine->band_next->waiters.count) {
			first = engine->band_next;
		}
		engine->band_until = NEVER;
		engine->band_next = NULL;
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
		if (engine->last == arrived && engine->gpu->users > 1 && over_band(arrived, now))
			goto keep_free;
	}
	return first;
keep_free:
	engine->last = NULL;
	engine->band_next = first;
	engine->band_until = add_time(now, engine->gpu->params.band_wait_ns);
	*wait_until = engine->band_until;
	return NULL;
}

struct core_account *queue_pick(struct core_engine *engine, uint64_t now, uint64_t *wait_until)
{
	struct heap_node *node = heap_first(&engine->ready);

	if (!node)
		return NULL;
	if (engine->gpu->params.policy == RTXG_GPU_BAND)
		return band_pick(engine, now, wait_until);
	return heap_owner(node, struct core_account, ready);
}
