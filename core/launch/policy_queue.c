/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy_queue.c - Gdev's credit (Kato et al., USENIX ATC 2012), for the policies that decide on
 * it. No policy itself.
 *
 * Where this differs from its sources: credit is kept for each engine, and is a function of time,
 * so it is exact without a thread that ticks.
 */
#include "policy_queue.h"

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
 * stays at the border (CHARGE). No one looks at a credit in between, so all ticks since the last
 * look are done at once: below the border it grows by a constant; after a reset it repeats 0, c,
 * 2c, ... up to T with a fixed length.
 */
void queue_settle(struct core_account *account, uint64_t now)
{
	const struct rtxg_gpu_params *params = &account->vgpu->gpu->params;
	struct queue_books *books = core_books(account, struct queue_books);
	int64_t threshold = (int64_t)params->period_ns;
	int64_t add = credit_per_tick(account);
	uint64_t tick = (now - account->vgpu->gpu->epoch_ns) / params->period_ns;
	uint64_t ticks = tick - books->tick;

	books->tick = tick;
	if (!ticks)
		return;
	if (params->overrun == RTXG_OVERRUN_CHARGE) {
		/*
		 * The first tick may find the credit far outside; after it, it only grows until it
		 * meets the threshold.
		 */
		books->credit = clamp_credit(books->credit + add, threshold);
		ticks = min_u64(ticks - 1, add ? (uint64_t)(2 * threshold / add + 1) : 0);
		books->credit = clamp_credit(books->credit + (int64_t)ticks * add, threshold);
		return;
	}
	/* The first tick may find the credit far outside. */
	books->credit += add;
	ticks--;
	if (books->credit > threshold || books->credit < -threshold)
		books->credit = 0;
	if (!ticks || !add)
		return;
	if (books->credit + (int64_t)min_u64(ticks, (uint64_t)(2 * threshold / add + 1)) * add <=
	    threshold) {
		books->credit += (int64_t)ticks * add;
		return;
	}
	/* the tick that resets it included */
	ticks -= (uint64_t)((threshold - books->credit) / add) + 1;
	books->credit = (int64_t)(ticks % ((uint64_t)(threshold / add) + 1)) * add;
}

void queue_charge(struct core_account *account, const struct core_usage *usage, uint64_t now)
{
	struct queue_books *books = core_books(account, struct queue_books);

	queue_settle(account, now);
	books->credit -= (int64_t)min_u64(usage->all, INT64_MAX / 4);
	if (books->credit < -(INT64_MAX / 4))
		books->credit = -(INT64_MAX / 4);
}

void queue_reset(struct core_account *account, uint64_t now)
{
	const struct core_gpu *gpu = account->vgpu->gpu;

	*core_books(account, struct queue_books) = (struct queue_books){
		.tick = (now - gpu->epoch_ns) / gpu->params.period_ns,
	};
}

void queue_view(const struct core_account *account, struct rtxg_account_view *view)
{
	view->credit_ns = core_books(account, struct queue_books)->credit;
}
