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
	free(batch->in_registry);
	free(batch->end);
	memset(batch, 0, sizeof(*batch));
}

/* Room for one more of each; realloc() keeps what there is when it fails. */
static int make_room(struct nv_batch *batch)
{
	unsigned int room = batch->room ? batch->room * 2 : 64;
	void *p;

	if (batch->count < batch->room)
		return 0;
	p = realloc(batch->client, room * sizeof(*batch->client));
	if (!p)
		return -ENOMEM;
	batch->client = p;
	p = realloc(batch->channel, room * sizeof(*batch->channel));
	if (!p)
		return -ENOMEM;
	batch->channel = p;
	p = realloc(batch->in_registry, room * sizeof(*batch->in_registry));
	if (!p)
		return -ENOMEM;
	batch->in_registry = p;
	batch->room = room;
	return 0;
}

static bool wanted(const struct nv_channel *channel, enum nv_which which)
{
	switch (which) {
	case NV_HOT:
		return channel->queue.hot;
	case NV_RUNNING:
		return !channel->stops;
	case NV_STOPPED:
		return channel->stops;
	case NV_ALL:
		break;
	}
	return true;
}

struct adding {
	struct nv_batch *batch;
	const struct nv_process *part; /* whose channels were added last */
	enum nv_which which;
};

/* What was added up to now is a part of its own. */
static int end_part(struct nv_batch *batch)
{
	if (batch->parts == batch->part_room) {
		unsigned int room = batch->part_room ? batch->part_room * 2 : 16;
		unsigned int *p = realloc(batch->end, room * sizeof(*p));

		if (!p)
			return -ENOMEM;
		batch->end = p;
		batch->part_room = room;
	}
	if (batch->count > (batch->parts ? batch->end[batch->parts - 1] : 0))
		batch->end[batch->parts++] = batch->count;
	return 0;
}

static int add_group(void *ctx, struct nv_group *group)
{
	struct adding *a = ctx;
	struct nv_batch *batch = a->batch;

	/*
	 * A guest's channels may be gone before it is said: that is not to cost its host's calls.
	 */
	if (group->process != a->part && end_part(batch))
		return -ENOMEM;
	a->part = group->process;
	for (unsigned int c = 0; c < group->count; c++) {
		if (!wanted(&group->channels[c], a->which))
			continue;
		if (make_room(batch))
			return -ENOMEM;
		batch->client[batch->count] = group->client;
		batch->channel[batch->count] = group->channels[c].handle;
		batch->in_registry[batch->count++] = &group->channels[c];
	}
	return 0;
}

int nv_batch_add(struct nv_batch *batch, const struct nv_process *process, uint32_t device,
		 enum nv_which which)
{
	struct adding a = { .batch = batch, .part = process, .which = which };
	unsigned int count = batch->count, parts = batch->parts;
	int err = nv_process_each(process, device, add_group, &a);

	if (!err)
		err = end_part(batch);
	if (err) {
		batch->count = count;
		batch->parts = parts;
	}
	return err;
}

int nv_batch_add_group(struct nv_batch *batch, struct nv_group *group, enum nv_which which)
{
	struct adding a = { .batch = batch, .part = group->process, .which = which };
	unsigned int count = batch->count, parts = batch->parts;
	int err = add_group(&a, group);

	if (!err)
		err = end_part(batch);
	if (err) {
		batch->count = count;
		batch->parts = parts;
	}
	return err;
}

static int disable(struct nv_rm_gpu *gpu, const struct nv_batch *batch, unsigned int at,
		   unsigned int count, bool stop, bool leave)
{
	struct nv_disable_channels d = { .disable = stop,
					 .only_scheduling = leave,
					 .count = count };

	memcpy(d.client, batch->client + at, count * sizeof(*d.client));
	memcpy(d.channel, batch->channel + at, count * sizeof(*d.channel));
	return nv_rm_control(gpu->rm, gpu->subdevice, NV2080_FIFO_DISABLE_CHANNELS, &d, sizeof(d));
}

/* The driver has let these go once, or they are gone. */
static void is_going(struct nv_rm_gpu *gpu, struct nv_journal *journal,
		     const struct nv_batch *batch, unsigned int at, unsigned int end, bool gone)
{
	for (; at < end; at++) {
		struct nv_channel *channel = batch->in_registry[at];

		channel->stops = gone || !channel->stops ? 0 : channel->stops - 1;
		nv_journal_note(journal, gpu->device_instance, batch->client[at],
				batch->channel[at], channel->stops);
	}
}

/*
 * Lets go of some of a batch, in calls of so many channels. Returns the first error. Those of a
 * process that is being built are asked for one by one only if they are to go by all means
 * (`apart`).
 */
static int let_go(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch,
		  unsigned int at, unsigned int end, unsigned int most, bool apart)
{
	int err = 0;

	while (at < end) {
		unsigned int n = end - at < most ? end - at : most;
		int e = disable(gpu, batch, at, n, false, false);

		/* A channel that has gone since is no error, but spoils the call for all. */
		if (e && n > 1 && (apart || e != -EAGAIN))
			e = let_go(gpu, journal, batch, at, at + n, 1, apart);
		else if (!e || e == -ESRCH || e == -ENOENT || e == -EINVAL)
			is_going(gpu, journal, batch, at, at + n, e != 0);
		else
			err = err ? err : e;
		if (e && n > 1)
			err = err ? err : e;
		at += n;
	}
	return err;
}

static int resume_once(struct nv_rm_gpu *gpu, struct nv_journal *journal,
		       const struct nv_batch *batch, bool apart)
{
	unsigned int at = 0, part = 0;
	int err = 0;

	while (at < batch->count) {
		unsigned int n = batch->count - at < NV_DISABLE_CHANNELS_MAX
					 ? batch->count - at
					 : NV_DISABLE_CHANNELS_MAX;
		unsigned int from = at;

		while (batch->end[part] <= at)
			part++;
		/* All of one process is asked for below. */
		if ((apart || batch->end[part] < at + n) &&
		    !disable(gpu, batch, at, n, false, false)) {
			is_going(gpu, journal, batch, at, at + n, false);
			at += n;
			continue;
		}
		/* Process by process, so that one bad one costs the others one call each. */
		for (unsigned int k = part; from < at + n; k++) {
			unsigned int to = batch->end[k] < at + n ? batch->end[k] : at + n;
			int e = let_go(gpu, journal, batch, from, to, NV_DISABLE_CHANNELS_MAX,
				       apart);

			err = err ? err : e;
			from = to;
		}
		at += n;
	}
	return err;
}

/* What of a batch the driver may have stopped more often than it has let it go. */
static int rest_of(struct nv_batch *rest, const struct nv_batch *batch)
{
	unsigned int i, part = 0;
	int err = 0;

	for (i = 0; i < batch->count && !err; i++) {
		if (batch->end[part] == i) {
			err = end_part(rest);
			part++;
		}
		if (err || !batch->in_registry[i]->stops)
			continue;
		err = make_room(rest);
		if (err)
			break;
		rest->client[rest->count] = batch->client[i];
		rest->channel[rest->count] = batch->channel[i];
		rest->in_registry[rest->count++] = batch->in_registry[i];
	}
	return err ? err : end_part(rest);
}

static int resume(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch,
		  bool apart)
{
	int err = resume_once(gpu, journal, batch, apart);
	bool more = true;

	/* As often as it was stopped; once too often does no harm. */
	while (!err && more) {
		struct nv_batch rest = { 0 };

		err = rest_of(&rest, batch);
		more = !err && rest.count;
		if (more)
			err = resume_once(gpu, journal, &rest, apart);
		nv_batch_free(&rest);
	}
	return err;
}

int nv_resume(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch)
{
	return resume(gpu, journal, batch, true);
}

void nv_resume_last(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch)
{
	if (nv_resume(gpu, journal, batch))
		is_going(gpu, journal, batch, 0, batch->count, true);
}

int nv_resume_built(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch)
{
	return resume(gpu, journal, batch, false);
}

/* *asked: the driver was asked for some of it at least. */
static int suspend(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch,
		   bool leave, bool *asked)
{
	unsigned int at, i, noted, done = 0;
	int err = 0;

	*asked = false;
	for (noted = 0; noted < batch->count && !err; noted++)
		err = nv_journal_note(journal, gpu->device_instance, batch->client[noted],
				      batch->channel[noted], batch->in_registry[noted]->stops + 1u);
	for (at = 0; at < batch->count && !err; at += NV_DISABLE_CHANNELS_MAX) {
		unsigned int n = batch->count - at;

		if (n > NV_DISABLE_CHANNELS_MAX)
			n = NV_DISABLE_CHANNELS_MAX;
		for (i = at; i < at + n; i++)
			batch->in_registry[i]->stops++;
		done = at + n;
		*asked = true;
		err = disable(gpu, batch, at, n, true, leave);
	}
	for (i = done; i < noted && err; i++) /* it was not asked for */
		nv_journal_note(journal, gpu->device_instance, batch->client[i], batch->channel[i],
				batch->in_registry[i]->stops);
	return err;
}

int nv_try_suspend(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch,
		   bool leave)
{
	bool asked;

	return suspend(gpu, journal, batch, leave, &asked);
}

int nv_suspend(struct nv_rm_gpu *gpu, struct nv_journal *journal, const struct nv_batch *batch,
	       bool leave)
{
	bool asked;
	int err = suspend(gpu, journal, batch, leave, &asked);
	uint32_t status = gpu->rm->status;

	if (!err || !asked)
		return err;
	/* Some of them may have been stopped. None may stay so. */
	nv_resume(gpu, journal, batch);
	gpu->rm->status = status; /* of what failed, for the message */
	return err;
}

/* 0: that descriptor, a duplicate, is the one on which the client was allocated. */
static int asked_for(struct nv_rm *rm, int fd, uint32_t client)
{
	struct nv_handle_info info = { .object = client, .index = NV_HANDLE_INFO_CLASS };

	return nv_rm_control_foreign(rm, fd, client, client, NV0000_CLIENT_GET_HANDLE_INFO, &info,
				     sizeof(info));
}

int nv_client_fd(struct nv_rm *rm, int pidfd, uint32_t pid, struct nv_client *client)
{
	const struct nv_sys *sys = rm->sys;
	int fd = client->fd < 0 ? -EBADF : sys->pidfd_getfd(sys->ctx, pidfd, client->fd);
	int fds[64], n, err = fd;

	if (fd >= 0 || fd != -EBADF)
		return fd;
	n = sys->ctl_fds(sys->ctx, (int)pid, fds, 64);
	for (int i = 0; i < n && i < 64; i++) {
		fd = sys->pidfd_getfd(sys->ctx, pidfd, fds[i]);
		if (fd < 0)
			continue;
		if (!asked_for(rm, fd, client->handle)) {
			client->fd = fds[i];
			return fd;
		}
		sys->close(sys->ctx, fd);
	}
	return err;
}

/* By that descriptor; as nv_client_is_of(). */
static int is_by(struct nv_rm *rm, int pidfd, int fd, uint32_t client)
{
	const struct nv_sys *sys = rm->sys;
	int own = fd < 0 ? -EBADF : sys->pidfd_getfd(sys->ctx, pidfd, fd), err;

	if (own < 0)
		return own == -EBADF ? 0 : own;
	err = asked_for(rm, own, client);
	sys->close(sys->ctx, own);
	return err ? nv_rm_denies(err) ? 0 : err : 1;
}

int nv_client_is_of(struct nv_rm *rm, uint32_t pid, int fd, uint32_t client)
{
	const struct nv_sys *sys = rm->sys;
	int fds[64], pidfd = sys->pidfd_open(sys->ctx, (int)pid), n = 0, answer;

	if (pidfd < 0)
		return pidfd == -ESRCH ? 0 : pidfd;
	answer = is_by(rm, pidfd, fd, client);
	if (!answer)
		n = sys->ctl_fds(sys->ctx, (int)pid, fds, 64);
	for (int i = 0; i < n && i < 64 && !answer; i++)
		if (fds[i] != fd)
			answer = is_by(rm, pidfd, fds[i], client);
	sys->close(sys->ctx, pidfd);
	if (!answer && n < 0)
		return n == -ENOENT || n == -ESRCH ? 0 : n;
	return !answer && n > 64 ? -ENOSPC : answer;
}

struct job {
	struct nv_rm_gpu *gpu;
	struct nv_journal *journal;
	uint32_t value, found;
	bool other; /* found differs from value */
};

typedef int (*group_fn)(struct job *job, int fd, const struct nv_process *process,
			const struct nv_group *group);

/*
 * Does something to each compute group of the process, through the process's own descriptor.
 * Returns the first error; -ENOENT if it has no group.
 */
static int each_group(struct job *job, struct nv_process *process, uint32_t device, group_fn fn)
{
	const struct nv_sys *sys = job->gpu->rm->sys;
	uint32_t of = 0, status = NV_STATUS_OK;
	int pidfd, fd = -1, err = 0;
	bool any = false;

	pidfd = sys->pidfd_open(sys->ctx, (int)process->pid);
	if (pidfd < 0)
		return pidfd;
	for (unsigned int g = 0; g < process->group_count; g++) {
		const struct nv_group *group = &process->groups[g];
		struct nv_client *client = nv_process_client(process, group->client);
		int e = -EBADF;

		/* the slice of a group is set by its owner's word, not by a duplicate's */
		if (group->device != device || !nv_group_is_compute(group) || !group->count ||
		    group->lone || group->host)
			continue;
		any = true;
		if (fd < 0 || of != group->client) {
			if (fd >= 0)
				sys->close(sys->ctx, fd);
			fd = client ? nv_client_fd(job->gpu->rm, pidfd, process->pid, client)
				    : -EBADF;
			of = group->client;
		}
		e = fd < 0 ? fd : fn(job, fd, process, group);
		if (e && !err) {
			err = e;
			status = fd < 0 ? NV_STATUS_OK : job->gpu->rm->status;
		}
	}
	if (fd >= 0)
		sys->close(sys->ctx, fd);
	sys->close(sys->ctx, pidfd);
	if (err)
		job->gpu->rm->status = status;
	return any ? err : -ENOENT;
}

static int slice_and_restart(struct nv_rm_gpu *gpu, int fd, uint32_t client, uint32_t group,
			     uint32_t channel, uint32_t us)
{
	struct nv_timeslice t = { .us = us };
	struct nv_restart_runlist r = { .force = 1 };
	int err = nv_rm_control_foreign(gpu->rm, fd, client, group, NVA06C_SET_TIMESLICE, &t,
					sizeof(t));

	if (err || gpu->slice_at_once)
		return err;
	/* Unless the probes found otherwise, it counts from the next time the runlist is built. */
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

int nv_set_slice(struct nv_rm_gpu *gpu, struct nv_journal *journal, struct nv_process *process,
		 uint32_t device, uint32_t us)
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

	if (!err && !job->other) {
		job->found = t.us > UINT32_MAX ? UINT32_MAX : (uint32_t)t.us;
		job->other = job->found != job->value;
	}
	return err;
}

int nv_get_slice(struct nv_rm_gpu *gpu, struct nv_process *process, uint32_t device,
		 uint32_t wanted, uint32_t *us)
{
	struct job job = { .gpu = gpu, .value = wanted };
	int err = each_group(&job, process, device, get_one);

	if (!err)
		*us = job.found;
	return err;
}

static int preempt_one(struct job *job, int fd, const struct nv_process *process,
		       const struct nv_group *group)
{
	struct nv_preempt p = { .wait = 1, .manual_timeout = 1, .timeout_us = job->value };

	return nv_rm_control_foreign(job->gpu->rm, fd, group->client, group->handle, NVA06C_PREEMPT,
				     &p, sizeof(p));
}

int nv_preempt(struct nv_rm_gpu *gpu, struct nv_process *process, uint32_t device,
	       uint32_t timeout_us)
{
	struct job job = { .gpu = gpu, .value = timeout_us };

	return each_group(&job, process, device, preempt_one);
}
