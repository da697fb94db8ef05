// SPDX-License-Identifier: MIT
/*
 * history.c - every 100 ms, while a task is open: what each vGPU was charged, claimed and completed
 * since the last time. For people, and for tools that ask whether promises are kept. May not judge
 * one: the core does.
 */
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "history.h"
#include "host.h"
#include "metrics.h"
#include "rtxg_slice.h"

static uint32_t small(uint64_t value)
{
	return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* A task joins: from now on this account has a history, and samples are taken. */
void history_task_opened(struct daemon *d, struct account *account)
{
	uint64_t now = rtxg_now_ns();

	if (!account->slots) {
		account->slots = calloc(SLOTS, sizeof(*account->slots));
		/* Without memory there is no history; nothing else depends on it. */
		for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
			struct rtxg_account_view view;

			d->host->account_view(d, account, i, now, &view);
			account->engines[i].last = view.stats;
		}
	}
	history_wake(d);
}

void history_wake(struct daemon *d)
{
	uint64_t now = rtxg_now_ns();

	if (d->sample_ns != RTXG_TIME_NEVER)
		return;
	/*
	 * A slot closes the time in which no task was open; before the first task there was no such
	 * time.
	 */
	if (d->samples)
		history_sample(d);
	else
		d->times[0] = now;
	d->sample_ns = now + SLOT_NS;
}

uint64_t history_oldest(const struct daemon *d)
{
	return d->samples > SLOTS ? d->samples - SLOTS : 0;
}

uint64_t history_border(const struct daemon *d, uint64_t oldest, uint64_t from)
{
	uint64_t border = d->samples;

	while (border > oldest && d->times[(border - 1) % (SLOTS + 1)] + SLOT_NS / 2 >= from)
		border--;
	return border;
}

#define PROMISE_SLOTS (RTXG_SLICE_SHARE_SPAN_NS / SLOT_NS)

/* Its share of the compute engine over the last second. */
static void note_promise(struct daemon *d, struct account *account, uint64_t now)
{
	struct rtxg_slice_share share = { .min_ppm = account->vgpu->params.min_ppm };
	uint64_t first;

	account->short_of_share = false;
	/* A policy that reads no parameter reserves nothing. */
	if (!share.min_ppm || d->samples + 1 < PROMISE_SLOTS ||
	    !rtxg_gpu_policy_reads(account->gpu->params.policy))
		return;
	first = d->samples + 1 - PROMISE_SLOTS;
	share.span_ns = share.whole_ns = now - d->times[first % (SLOTS + 1)];
	for (uint64_t n = first; n <= d->samples; n++) {
		share.got_ns += account->slots[n % SLOTS][RTXG_ENGINE_COMPUTE].busy_ns;
		share.wanted_ns += account->slots[n % SLOTS][RTXG_ENGINE_COMPUTE].backlogged_ns;
	}
	if (!rtxg_slice_share_broken(&share))
		return;
	account->short_of_share = true;
	account->short_ns += now - d->times[d->samples % (SLOTS + 1)];
}

void history_sample(struct daemon *d)
{
	uint64_t now;

	d->host->count(d);
	now = rtxg_now_ns();
	for (uint32_t id = 0; id < ACCOUNTS_MAX; id++) {
		struct account *account = &d->accounts[id];

		if (!account->used || !account->slots)
			continue;
		for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
			struct account_engine *e = &account->engines[i];
			const struct permit_use *use = &account->permit.engines[i];
			struct slot *slot = &account->slots[d->samples % SLOTS][i];
			uint64_t active = permit_active_ns(use, now);
			struct rtxg_account_view view;

			d->host->account_view(d, account, i, now, &view);
			slot->busy_ns = small(view.stats.busy_ns - e->last.busy_ns);
			slot->device_ns = small(use->device_ns - e->last_device_ns);
			slot->backlogged_ns = small(active - e->last_active_ns);
			e->entitled_ns +=
				metrics_entitled(account->vgpu, active - e->last_active_ns);
			slot->completions = small(view.stats.completions - e->last.completions);
			e->last = view.stats;
			e->last_device_ns = use->device_ns;
			e->last_active_ns = active;
		}
		note_promise(d, account, now);
	}
	backend_sample(d);
	d->samples++;
	d->times[d->samples % (SLOTS + 1)] = now;
	/* Behind by more than a slot (a stopped machine): go on from here. */
	d->sample_ns += SLOT_NS;
	if (d->sample_ns <= now)
		d->sample_ns = now + SLOT_NS;
	if (!backend_busy(d))
		d->sample_ns = RTXG_TIME_NEVER;
}
