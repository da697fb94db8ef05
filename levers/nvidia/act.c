// SPDX-License-Identifier: MIT
/*
 * act.c - see act.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "act.h"

void nv_batch_free(struct nv_batch *batch)
{
	free(batch->client);
	free(batch->channel);
	memset(batch, 0, sizeof(*batch));
}

static int batch_push(struct nv_batch *batch, uint32_t client, uint32_t channel)
{
	if (batch->count == batch->room) {
		unsigned int room = batch->room ? batch->room * 2 : 64;
		uint32_t *a = realloc(batch->client, room * sizeof(*a)), *b;

		if (!a)
			return -ENOMEM;
		batch->client = a;
		b = realloc(batch->channel, room * sizeof(*b));
		if (!b)
			return -ENOMEM;
		batch->channel = b;
		batch->room = room;
	}
	batch->client[batch->count] = client;
	batch->channel[batch->count++] = channel;
	return 0;
}

int nv_batch_add(struct nv_batch *batch, const struct nv_process *process, uint32_t device)
{
	for (unsigned int g = 0; g < process->group_count; g++) {
		const struct nv_group *group = &process->groups[g];

		if (group->device != device || !nv_group_is_compute(group))
			continue;
		for (unsigned int c = 0; c < group->count; c++) {
			int err = batch_push(batch, group->client, group->channels[c].handle);

			if (err)
				return err;
		}
	}
	return 0;
}

static int disable(struct nv_rm_gpu *gpu, const uint32_t *client, const uint32_t *channel,
		   unsigned int count, bool stop, bool leave)
{
	struct nv_disable_channels d = { .disable = stop,
					 .only_scheduling = leave,
					 .count = count };

	memcpy(d.client, client, count * sizeof(*client));
	memcpy(d.channel, channel, count * sizeof(*channel));
	return nv_rm_control(gpu->rm, gpu->subdevice, NV2080_FIFO_DISABLE_CHANNELS, &d, sizeof(d));
}

/*
 * One call for each 64. A channel that has gone since spoils its call, so then they are taken one
 * by one.
 */
static int let_go(struct nv_rm_gpu *gpu, const struct nv_batch *batch, unsigned int count)
{
	int err = 0;

	for (unsigned int at = 0; at < count; at += NV_DISABLE_CHANNELS_MAX) {
		unsigned int n =
			count - at < NV_DISABLE_CHANNELS_MAX ? count - at : NV_DISABLE_CHANNELS_MAX;
		int e = disable(gpu, batch->client + at, batch->channel + at, n, false, false);

		if (!e)
			continue;
		for (unsigned int i = at; i < at + n; i++) {
			e = disable(gpu, batch->client + i, batch->channel + i, 1, false, false);
			if (e && e != -ESRCH && e != -ENOENT && e != -EINVAL && !err)
				err = e;
		}
	}
	return err;
}

int nv_suspend(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch,
	       bool leave)
{
	unsigned int at, i;
	int err = 0;

	for (i = 0; i < batch->count && !err; i++)
		err = nv_journal_add(journal, gpu->device_instance, batch->client[i],
				     batch->channel[i]);
	for (at = 0; at < batch->count && !err; at += NV_DISABLE_CHANNELS_MAX) {
		unsigned int n = batch->count - at;

		if (n > NV_DISABLE_CHANNELS_MAX)
			n = NV_DISABLE_CHANNELS_MAX;
		err = disable(gpu, batch->client + at, batch->channel + at, n, true, leave);
	}
	if (!err)
		return 0;
	/* Some of them may have been stopped. None may stay so. */
	if (!let_go(gpu, batch, batch->count))
		for (i = 0; i < batch->count; i++)
			nv_journal_remove(journal, gpu->device_instance, batch->client[i],
					  batch->channel[i]);
	return err;
}

int nv_resume(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch)
{
	int err = let_go(gpu, batch, batch->count);

	if (!err)
		for (unsigned int i = 0; i < batch->count; i++)
			nv_journal_remove(journal, gpu->device_instance, batch->client[i],
					  batch->channel[i]);
	return err;
}

struct job {
	struct nv_rm_gpu *gpu;
	struct nv_journal *journal;
	uint32_t value;
};

typedef int (*group_fn)(struct job *job, int fd, const struct nv_process *process,
			const struct nv_group *group);

/* Does something to each compute group of the process, through the process's own descriptor. */
static int each_group(struct job *job, const struct nv_process *process, uint32_t device,
		      group_fn fn)
{
	const struct nv_sys *sys = job->gpu->rm->sys;
	int pidfd, err = -ENOENT;

	pidfd = sys->pidfd_open(sys->ctx, (int)process->pid);
	if (pidfd < 0)
		return pidfd;
	for (unsigned int g = 0; g < process->group_count; g++) {
		const struct nv_group *group = &process->groups[g];
		const struct nv_client *client = nv_process_client(process, group->client);
		int fd;

		if (group->device != device || !nv_group_is_compute(group) || !group->count ||
		    group->lone)
			continue;
		if (!client || client->fd < 0) {
			err = -EBADF;
			break;
		}
		fd = sys->pidfd_getfd(sys->ctx, pidfd, client->fd);
		if (fd < 0) {
			err = fd;
			break;
		}
		err = fn(job, fd, process, group);
		sys->close(sys->ctx, fd);
		if (err)
			break;
	}
	sys->close(sys->ctx, pidfd);
	return err;
}

static int slice_and_restart(struct nv_rm_gpu *gpu, int fd, uint32_t client, uint32_t group,
			     uint32_t channel, uint32_t us)
{
	struct nv_timeslice t = { .us = us };
	struct nv_restart_runlist r = { .force = 1 };
	int err = nv_rm_control_foreign(gpu->rm, fd, client, group, NVA06C_SET_TIMESLICE, &t,
					sizeof(t));

	if (err)
		return err;
	/* The new value counts from the next time the runlist is built. */
	return nv_rm_control_foreign(gpu->rm, fd, client, channel, NVA06F_RESTART_RUNLIST, &r,
				     sizeof(r));
}

static int slice_one(struct job *job, int fd, const struct nv_process *process,
		     const struct nv_group *group)
{
	const struct nv_client *client = nv_process_client(process, group->client);
	int err = 0;

	if (job->value != NV_DRIVER_SLICE_US) {
		struct nv_journal_slice note = { .device = job->gpu->device_instance,
						 .client = group->client,
						 .group = group->handle,
						 .channel = group->channels[0].handle,
						 .pid = process->pid,
						 .fd = client->fd };

		err = nv_journal_slice(job->journal, &note);
	}
	if (!err)
		err = slice_and_restart(job->gpu, fd, group->client, group->handle,
					group->channels[0].handle, job->value);
	if (!err && job->value == NV_DRIVER_SLICE_US)
		nv_journal_slice_remove(job->journal, process->pid, group->client, group->handle);
	return err;
}

int nv_set_slice(struct nv_rm_gpu *gpu, struct nv_journal *journal,
		 const struct nv_process *process, uint32_t device, uint32_t us)
{
	struct job job = { .gpu = gpu, .journal = journal, .value = us };

	if (us < 1 || us > 1000000)
		return -EINVAL;
	return each_group(&job, process, device, slice_one);
}

int nv_set_slice_of(struct nv_rm_gpu *gpu, uint32_t pid, int fd, uint32_t client, uint32_t group,
		    uint32_t channel, uint32_t us)
{
	const struct nv_sys *sys = gpu->rm->sys;
	int pidfd = sys->pidfd_open(sys->ctx, (int)pid), own, err;

	if (pidfd < 0)
		return pidfd;
	own = sys->pidfd_getfd(sys->ctx, pidfd, fd);
	sys->close(sys->ctx, pidfd);
	if (own < 0)
		return own;
	err = slice_and_restart(gpu, own, client, group, channel, us);
	sys->close(sys->ctx, own);
	return err;
}

static int get_one(struct job *job, int fd, const struct nv_process *process,
		   const struct nv_group *group)
{
	struct nv_timeslice t = { 0 };
	int err = nv_rm_control_foreign(job->gpu->rm, fd, group->client, group->handle,
					NVA06C_GET_TIMESLICE, &t, sizeof(t));

	if (!err)
		job->value = t.us > UINT32_MAX ? UINT32_MAX : (uint32_t)t.us;
	return err;
}

int nv_get_slice(struct nv_rm_gpu *gpu, const struct nv_process *process, uint32_t device,
		 uint32_t *us)
{
	struct job job = { .gpu = gpu };
	int err = each_group(&job, process, device, get_one);

	if (!err)
		*us = job.value;
	return err;
}

static int preempt_one(struct job *job, int fd, const struct nv_process *process,
		       const struct nv_group *group)
{
	struct nv_preempt p = { .wait = 1, .manual_timeout = 1, .timeout_us = job->value };

	return nv_rm_control_foreign(job->gpu->rm, fd, group->client, group->handle, NVA06C_PREEMPT,
				     &p, sizeof(p));
}

int nv_preempt(struct nv_rm_gpu *gpu, const struct nv_process *process, uint32_t device,
	       uint32_t timeout_us)
{
	struct job job = { .gpu = gpu, .value = timeout_us };

	return each_group(&job, process, device, preempt_one);
}
