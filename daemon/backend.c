// SPDX-License-Identifier: MIT
/*
 * backend.c - asks every backend in turn. May not know one by name: that is backends.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "backend.h"
#include "series.h"

#define EACH(d, b) for (const struct backend *b, *const *at = (d)->backends; (b = *at); at++)

void backend_start(struct daemon *d)
{
	EACH(d, b)
	if (b->start)
		b->start(d);
	d->governing = true;
}

void backend_stop(struct daemon *d)
{
	d->governing = false;
	EACH(d, b)
	if (b->stop)
		b->stop();
}

int backend_admit(struct daemon *d, const struct vgpu *vgpu, const struct vgpu *wanted, char *why,
		  size_t size, struct rtxg_refusal *refusal)
{
	bool kept = false;

	/* Before, nothing can be known of it; config_tell_bounds() says it later. */
	if (!d->governing || d->configuring)
		return 0;
	EACH(d, b)
	{
		int ret = b->admit ? b->admit(d, vgpu, wanted, why, size, refusal) : 0;

		if (ret < 0)
			return ret;
		kept |= ret > 0;
	}
	if (kept || !wanted->latency_ns)
		return 0;
	EACH(d, b)
	if (b->unkept)
		b->unkept(d, wanted, why, size);
	return -EOPNOTSUPP;
}

void backend_vgpu_changed(struct daemon *d, const struct vgpu *vgpu)
{
	EACH(d, b)
	if (b->vgpu_changed)
		b->vgpu_changed(d, vgpu);
}

void backend_vgpu_gone(struct daemon *d, const struct vgpu *vgpu)
{
	EACH(d, b)
	if (b->vgpu_gone)
		b->vgpu_gone(d, vgpu);
}

int backend_assign(struct daemon *d, pid_t pid, const struct vgpu *vgpu, uint64_t period_ns,
		   bool sets)
{
	int ret = -EOPNOTSUPP;

	EACH(d, b)
	if (b->assign && ret == -EOPNOTSUPP)
		ret = b->assign(d, pid, vgpu, period_ns, sets);
	return ret;
}

void backend_place(struct daemon *d, bool all)
{
	EACH(d, b)
	if (b->place)
		b->place(d, all);
}

bool backend_populates(struct daemon *d, const struct vgpu *vgpu)
{
	EACH(d, b)
	if (b->populates && b->populates(d, vgpu))
		return true;
	return false;
}

bool backend_busy(const struct daemon *d)
{
	EACH(d, b)
	if (b->busy && b->busy(d))
		return true;
	return false;
}

int backend_urgency(const struct daemon *d)
{
	int most = 0;

	EACH(d, b)
	if (b->urgency > most && b->busy(d))
		most = b->urgency;
	return most;
}

uint64_t backend_own_ns(const struct daemon *d)
{
	uint64_t sum = 0;

	EACH(d, b)
	if (b->own_ns)
		sum += b->own_ns();
	return sum;
}

void backend_sample(struct daemon *d)
{
	EACH(d, b)
	if (b->sample)
		b->sample(d);
}

bool backend_has(struct daemon *d, const char *gpu)
{
	EACH(d, b)
	if (b->has && b->has(d, gpu))
		return true;
	return false;
}

void backend_gpus(struct daemon *d, json_t *gpus)
{
	EACH(d, b)
	if (b->gpus)
		b->gpus(d, gpus);
}

bool backend_tasks(struct daemon *d, const struct backend_filter *filter, struct backend_rows *rows)
{
	const struct backend *b;

	while ((b = d->backends[rows->backend])) {
		if (b->tasks && !b->tasks(d, filter, rows))
			return false;
		rows->backend++;
		rows->next = 0;
		backend_rows_drop(rows);
		if (rtxg_now_ns() >= rows->end_ns)
			break;
	}
	return !d->backends[rows->backend];
}

void backend_rows_drop(struct backend_rows *rows)
{
	free(rows->seen);
	rows->seen = NULL;
}

void backend_stats(struct daemon *d, uint64_t now, json_t *gpus)
{
	EACH(d, b)
	if (b->stats)
		b->stats(d, now, gpus);
}

void backend_memory(struct daemon *d, uint64_t used[VGPUS_MAX])
{
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		used[i] = UINT64_MAX;
	EACH(d, b)
	if (b->memory)
		b->memory(d, used);
}

void backend_metrics(struct daemon *d, uint64_t now, struct metrics *m)
{
	EACH(d, b)
	if (b->metrics)
		b->metrics(d, now, m);
}

bool backend_history(struct daemon *d, struct series_list *list)
{
	const struct backend *b;

	for (; (b = d->backends[list->backend]); list->backend++, list->at = 0)
		if (b->history && !b->history(d, list))
			return false;
	return true;
}

json_t *backend_timeline(struct daemon *d, uint64_t since, const struct connection *viewer)
{
	EACH(d, b)
	if (b->timeline)
		return b->timeline(since, viewer);
	return json_pack("{s:i, s:i, s:[]}", "first", 0, "next", 0, "events");
}

void backend_doctor(struct daemon *d, json_t *checks, const struct connection *viewer)
{
	EACH(d, b)
	if (b->doctor)
		b->doctor(d, checks, viewer);
}
