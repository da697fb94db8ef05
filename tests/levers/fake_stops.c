// SPDX-License-Identifier: MIT
/*
 * fake_stops.c - see fake_stops.h. As driver 580 on an H200 does it (rtxg-nvlab calls).
 */
#include "fake_nvidiactl.h"
#include "fake_stops.h"

struct fake_channel *fake_channel_find(uint32_t client, uint32_t handle)
{
	for (uint32_t i = 0; i < fake->channels; i++)
		if (fake->channel[i].client == client && fake->channel[i].handle == handle &&
		    !fake->channel[i].gone)
			return &fake->channel[i];
	return NULL;
}

static bool journaled(uint32_t client, uint32_t channel)
{
	if (!fake->watched || !fake->watched->page)
		return true;
	for (uint32_t i = 0; i < fake->watched->page->high; i++) {
		struct nv_journal_entry *e = &fake->watched->page->entry[i];

		if (e->used && e->client == client && e->channel == channel)
			return true;
	}
	return false;
}

static void count_stop(struct fake_channel *channel, bool stop)
{
	channel->stopped = stop		      ? channel->stopped + 1
			   : channel->stopped ? channel->stopped - 1
					      : 0;
}

uint32_t fake_disable(uint32_t subdevice, struct nv_disable_channels *d)
{
	fake->disables++;
	fake->leaves += d->disable && d->only_scheduling;
	if (d->count > fake->biggest)
		fake->biggest = d->count;
	if (d->count > NV_DISABLE_CHANNELS_MAX)
		return NV_STATUS_INVALID_ARGUMENT;
	for (uint32_t i = 0; i < d->count; i++) {
		struct fake_channel *channel = fake_channel_find(d->client[i], d->channel[i]);

		if (fake->fail_client && d->client[i] == fake->fail_client)
			return fake->fail_status;
		if (!channel)
			return NV_STATUS_INVALID_OBJECT_HANDLE;
		if (fake->own_subdevice[channel->gpu] != subdevice) {
			fake->wrong_gpu++;
			return NV_STATUS_INVALID_OBJECT_HANDLE;
		}
		if (d->disable && !journaled(d->client[i], d->channel[i]))
			fake->unjournaled++;
		count_stop(channel, d->disable);
	}
	return NV_STATUS_OK;
}

uint32_t fake_stopped(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fake->channels; i++)
		n += fake->channel[i].stopped ? 1 : 0;
	return n;
}

void fake_half_stop(const struct nv_disable_channels *d, const struct fake_failure *f)
{
	uint32_t n = f->though_done ? f->though_done : d->count;

	for (uint32_t i = 0; i < n && i < d->count && d->disable; i++) {
		if (!f->though_done && (!f->client || d->client[i] == f->client))
			break;
		if (fake_channel_find(d->client[i], d->channel[i]))
			count_stop(fake_channel_find(d->client[i], d->channel[i]), true);
	}
}

void fake_look_at_beat(void)
{
	uint64_t beat =
		fake->watched && fake->watched->page ? fake->watched->page->heartbeat_ns : 0;

	if (beat && fake->now > beat + fake->longest_beat)
		fake->longest_beat = fake->now - beat;
}
