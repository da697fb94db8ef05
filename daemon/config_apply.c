// SPDX-License-Identifier: MIT
/*
 * config_apply.c - puts into force what the configuration files said. GPUs come before the shares
 * of them, and what has gone makes room before what is new asks for it.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ceiling.h"
#include "backend.h"
#include "config_apply.h"
#include "config_files.h"
#include "host.h"
#include "memory.h"
#include "names.h"
#include "objects.h"
#include "persist.h"
#include "place.h"

static void merge_gpu(struct rtxg_gpu_params *p, const struct wanted_gpu *w)
{
	if (w->set & SET(G_POLICY))
		p->policy = w->params.policy;
	if (w->set & SET(G_OVERRUN))
		p->overrun = w->params.overrun;
	if (w->set & SET(G_PERIOD))
		p->period_ns = w->params.period_ns;
	if (w->set & SET(G_WINDOW))
		p->window_ns = w->params.window_ns;
	if (w->set & SET(G_BAND_WAIT))
		p->band_wait_ns = w->params.band_wait_ns;
	if (w->set & SET(G_THINK))
		p->think_ns = w->params.think_ns;
	if (w->set & SET(G_REVOKE))
		p->revoke_timeout_ns = w->params.revoke_timeout_ns;
	if (w->set & SET(G_AHEAD))
		p->ahead_ns = w->params.ahead_ns;
	if (w->set & SET(G_EARLY))
		p->early_ns = w->params.early_ns;
	if (w->set & SET(G_SWITCH))
		p->switch_ppm = w->params.switch_ppm;
}

/* --- saying what is another than before ------------------------------------------------------- */

struct change {
	char text[512];
	size_t length;
};

static void __attribute__((format(printf, 2, 3)))
add(struct change *change, const char *format, ...)
{
	size_t room = sizeof(change->text) - change->length;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(change->text + change->length, room, format, ap);
	va_end(ap);
	if (n > 0)
		change->length += (size_t)n < room ? (size_t)n : room - 1;
}

static void tell(struct config *c, const struct change *change)
{
	if (c->changes)
		json_array_append_new(c->changes, message_string(change->text));
}

static void add_share(struct change *change, const char *key, uint32_t before, uint32_t after)
{
	if (before != after)
		add(change, " %s=%.10g%% (was %.10g%%)", key, after / 1e4, before / 1e4);
}

static void add_number(struct change *change, const char *key, uint64_t before, uint64_t after,
		       double unit)
{
	if (before != after)
		add(change, " %s=%.10g (was %.10g)", key, (double)after / unit,
		    (double)before / unit);
}

/* What stands in a file, where it is not given: 0 here. */
static void add_or_default(struct change *change, const char *key, uint64_t before, uint64_t after,
			   double unit)
{
	char now[32] = "default", was[32] = "default";

	if (before == after)
		return;
	if (after)
		snprintf(now, sizeof(now), "%.10g", (double)after / unit);
	if (before)
		snprintf(was, sizeof(was), "%.10g", (double)before / unit);
	add(change, " %s=%s (was %s)", key, now, was);
}

static void add_bytes(struct change *change, const char *key, uint64_t before, uint64_t after)
{
	char now[32] = "default", was[32] = "default";

	if (before == after)
		return;
	if (after)
		snprintf(now, sizeof(now), "%llu", (unsigned long long)after);
	if (before)
		snprintf(was, sizeof(was), "%llu", (unsigned long long)before);
	add(change, " %s=%s (was %s)", key, now, was);
}

static void tell_vgpu(struct config *c, const struct vgpu *before, const struct vgpu *after)
{
	const struct rtxg_vgpu_params *a = &before->params, *b = &after->params;
	struct change change = { 0 };
	size_t empty;

	add(&change, "vGPU %s:", after->name);
	empty = change.length;
	if (strcmp(before->gpu, after->gpu) != 0)
		add(&change, " GPU=%s (was %s)", after->gpu[0] ? after->gpu : "all",
		    before->gpu[0] ? before->gpu : "all");
	add_share(&change, "GPUMin", a->min_ppm, b->min_ppm);
	add_share(&change, "GPUQuota", a->max_ppm, b->max_ppm);
	add_or_default(&change, "GPUWeight", a->weight, b->weight, 1);
	add_number(&change, "GPUPriority", a->priority, b->priority, 1);
	add_number(&change, "GPUPeriodSec", a->period_ns, b->period_ns, 1e9);
	add_or_default(&change, "GPULatencySec", before->latency_ns, after->latency_ns, 1e9);
	add_or_default(&change, "GPUQuantumSec", before->quantum_ns, after->quantum_ns, 1e9);
	add_bytes(&change, "GPUMemoryMax", before->memory_bytes, after->memory_bytes);
	add_number(&change, "TaskPriority", before->task_priority, after->task_priority, 1);
	if (a->policy != b->policy)
		add(&change, " TaskPolicy=%s", rtxg_task_policy_name(b->policy));
	if (before->users_count != after->users_count ||
	    memcmp(before->users, after->users, sizeof(after->users)))
		add(&change, " Users= has changed");
	if (change.length != empty)
		tell(c, &change);
}

static void tell_gpu(struct config *c, const char *name, const struct rtxg_gpu_params *a,
		     const struct rtxg_gpu_params *b)
{
	struct change change = { 0 };
	size_t empty;

	add(&change, "GPU %s:", name);
	empty = change.length;
	if (a->policy != b->policy)
		add(&change, " Policy=%s (was %s)", rtxg_gpu_policy_name(b->policy),
		    rtxg_gpu_policy_name(a->policy));
	if (a->overrun != b->overrun)
		add(&change, " Overrun=%s",
		    b->overrun == RTXG_OVERRUN_CHARGE ? "charge" : "forgive");
	add_number(&change, "PeriodSec", a->period_ns, b->period_ns, 1e9);
	add_number(&change, "WindowSec", a->window_ns, b->window_ns, 1e9);
	add_number(&change, "BandWaitSec", a->band_wait_ns, b->band_wait_ns, 1e9);
	add_number(&change, "ThinkSec", a->think_ns, b->think_ns, 1e9);
	add_number(&change, "RevokeTimeoutSec", a->revoke_timeout_ns, b->revoke_timeout_ns, 1e9);
	add_number(&change, "AheadSec", a->ahead_ns, b->ahead_ns, 1e9);
	add_number(&change, "EarlySec", a->early_ns, b->early_ns, 1e9);
	add_share(&change, "SwitchCost", a->switch_ppm, b->switch_ppm);
	if (change.length != empty)
		tell(c, &change);
}

/* --- putting into force ----------------------------------------------------------------------- */

static const struct wanted_gpu *wanted(const struct config *c, const char *name)
{
	for (uint32_t i = 0; i < c->gpus_count; i++)
		if (!strcmp(c->gpus[i].name, name))
			return &c->gpus[i];
	return NULL;
}

/*
 * What the files say of a GPU, and where they say nothing what rtxg does by itself: also if they
 * said something before, or if it was changed by hand.
 */
static void apply_gpu(struct config *c, struct gpu *gpu)
{
	const struct wanted_gpu *w = wanted(c, gpu->name), *all = wanted(c, "*");
	struct daemon *d = c->daemon;
	struct rtxg_gpu_params params = d->gpu_default, before = gpu->params;
	char why[512];

	/* At the start it may be a GPU of a host that was there before: what it has stays. */
	if (!d->config_read) {
		params = gpu->params;
		if (all)
			merge_gpu(&params, all);
	}
	if (w)
		merge_gpu(&params, w);
	if (objects_gpu_change(d, gpu, &params, why, sizeof(why), NULL)) {
		config_say(c, true, "[GPU %s]: %s", w ? gpu->name : "*", why);
		return;
	}
	tell_gpu(c, gpu->name, &before, &params);
	gpu->changed = false;
	if (!w && gpu->origin == ORIGIN_CONFIG)
		gpu->origin = ORIGIN_TASK; /* named by no file: it stays while it is used */
}

/* What it reserves on the GPUs that it had was in force a moment ago: it is admitted there. */
static void take_back(struct daemon *d, struct vgpu *vgpu, const struct vgpu *before)
{
	char ignored[512];

	if (!strcmp(vgpu->gpu, before->gpu) ||
	    objects_vgpu_retarget(d, vgpu, before->gpu, ignored, sizeof(ignored)))
		return;
	objects_vgpu_change(d, vgpu, before, ignored, sizeof(ignored), NULL);
}

/*
 * What the files bound is bounded as far as it goes, at the start, where the levers are not known
 * yet, as at each reload: files that rtxgd has started with are not refused later.
 */
static bool bound_is_kept(struct daemon *d, const struct vgpu *vgpu, char *why, size_t size)
{
	return !vgpu->latency_ns || !backend_admit(d, vgpu, vgpu, why, size, NULL);
}

void config_tell_bounds(struct daemon *d)
{
	char why[512];

	for (uint32_t i = 0; i < VGPUS_MAX; i++) {
		const struct vgpu *vgpu = &d->vgpus[i];

		if (vgpu->used && vgpu->configured && !bound_is_kept(d, vgpu, why, sizeof(why)))
			fprintf(stderr, "rtxgd: %s: GPULatencySec=: %s\n", vgpu->source, why);
	}
}

static void apply_vgpu(struct config *c, const struct wanted_vgpu *w)
{
	struct daemon *d = c->daemon;
	struct vgpu *vgpu = objects_vgpu_find(d, w->vgpu.name), next;
	char why[512], lost[512];
	bool breaks;
	int error;

	next = w->vgpu;
	if (!(w->set & SET(V_MAX)))
		next.params.max_ppm = RTXG_PPM;
	if (!next.params.priority)
		next.params.priority = RTXG_PRIORITY_MIN;
	if (!next.params.period_ns)
		next.params.period_ns = RTXG_PERIOD_DEFAULT_NS;
	next.task_priority = rtxg_task_priority(next.task_priority, 0);
	next.origin = ORIGIN_CONFIG;
	next.configured = true;
	next.creator = -1;
	next.daemon = d;
	/* Whose bound goes with it is known only before it is in force. */
	breaks = backend_admit(d, vgpu, &next, lost, sizeof(lost), NULL) == -EBUSY;
	d->configuring = true;
	if (vgpu) {
		struct vgpu before = *vgpu;
		bool moves = strcmp(vgpu->gpu, next.gpu) != 0;

		error = moves ? objects_vgpu_retarget(d, vgpu, next.gpu, why, sizeof(why)) : 0;
		if (!error)
			error = objects_vgpu_change(d, vgpu, &next, why, sizeof(why), NULL);
		if (error && moves)
			take_back(d, vgpu, &before);
		if (!error) {
			memcpy(vgpu->users, next.users, sizeof(next.users));
			vgpu->users_count = next.users_count;
			strcpy(vgpu->source, next.source);
			if (vgpu->origin != ORIGIN_BUILTIN)
				vgpu->origin = ORIGIN_CONFIG;
			vgpu->configured = true;
			vgpu->changed = false;
			d->host->changed(d, NULL, vgpu);
			tell_vgpu(c, &before, vgpu);
		}
	} else {
		error = objects_vgpu_create(d, &next, &vgpu, why, sizeof(why), NULL);
		if (!error) {
			struct change change = { 0 };

			add(&change, "vGPU %s was made", vgpu->name);
			tell(c, &change);
		}
	}
	d->configuring = false;
	if (error) {
		config_say(c, true, "%s: %s", w->vgpu.source, why);
		return;
	}
	if (breaks)
		config_say(c, false, "%s: %s", w->vgpu.source, lost);
	if (!bound_is_kept(d, vgpu, why, sizeof(why)))
		config_say(c, false, "%s: GPULatencySec=: %s", w->vgpu.source, why);
	vgpu->persistent = persist_exists(d, vgpu->name);
	/*
	 * It is kept as far as it goes, at the start, where nothing is known of a driver, as later.
	 */
	if (memory_admit(d, vgpu, why, sizeof(why)))
		config_say(c, false, "%s: GPUMemoryMax=: %s", w->vgpu.source, why);
}

static void apply_pool(struct config *c, const struct wanted_pool *w)
{
	struct daemon *d = c->daemon;
	uint64_t mask = 0;
	char why[512];
	int error = 0;

	if (!w->count)
		return;
	for (uint32_t i = 0; i < w->count && !error; i++) {
		struct gpu *gpu = objects_gpu_get(d, w->gpus[i], ORIGIN_CONFIG, NULL, why,
						  sizeof(why), &error);

		if (gpu)
			mask |= 1ull << gpu->id;
	}
	if (!error && objects_pool_find(d, w->name)) {
		if (objects_pool_find(d, w->name)->mask == mask)
			return;
		error = objects_pool_remove(d, objects_pool_find(d, w->name));
		if (error)
			snprintf(why, sizeof(why), "its GPUs cannot be changed while it is in use");
	}
	if (!error)
		error = objects_pool_create(d, w->name, mask, why, sizeof(why));
	if (error)
		config_say(c, true, "[Pool %s]: %s", w->name, why);
}

/* Pools that no file names any more go; those of a request stay, and those of the kernel module. */
static void drop_pools(struct config *c)
{
	struct daemon *d = c->daemon;

	for (uint32_t i = 0; i < POOLS_MAX; i++) {
		struct pool *pool = &d->pools[i];
		bool wanted = !pool->used || pool->made || !d->host->here;

		for (uint32_t n = 0; n < c->pools_count && !wanted; n++)
			wanted = c->pools[n].count && !strcmp(c->pools[n].name, pool->name);
		if (wanted)
			continue;
		if (objects_pool_remove(d, pool))
			config_say(c, false,
				   "pool %s is configured no longer; it stays while tasks hold or "
				   "want a GPU of it",
				   pool->name);
		else
			config_say(c, false, "pool %s is configured no longer and was removed",
				   pool->name);
	}
}

static void make_builtins(struct config *c)
{
	struct daemon *d = c->daemon;
	struct vgpu standard = {
		.daemon = d,
		.name = "default",
		.origin = ORIGIN_BUILTIN,
		.task_priority = RTXG_PRIORITY_MIN,
		.creator = -1,
		.params = { .max_ppm = RTXG_PPM,
			    .priority = RTXG_PRIORITY_MIN,
			    .period_ns = RTXG_PERIOD_DEFAULT_NS },
	};
	struct vgpu *vgpu;
	char why[512];
	int error;

	/* On a host that was there before us they may be there, made for a task. */
	if (!objects_gpu_get(d, "0", ORIGIN_BUILTIN, NULL, why, sizeof(why), &error))
		config_say(c, true, "%s", why);
	if (!objects_vgpu_find(d, "default") &&
	    objects_vgpu_create(d, &standard, &vgpu, why, sizeof(why), NULL))
		config_say(c, true, "%s", why);
}

static void apply_gpus(struct config *c)
{
	const struct wanted_gpu *all = wanted(c, "*");
	struct daemon *d = c->daemon;
	char why[512];
	int error;

	objects_gpu_defaults(d);
	if (all)
		merge_gpu(&d->gpu_default, all);
	d->gpu_default_changed = false;
	make_builtins(c);
	for (uint32_t i = 0; i < c->gpus_count; i++)
		if (&c->gpus[i] != all && !objects_gpu_get(d, c->gpus[i].name, ORIGIN_CONFIG, NULL,
							   why, sizeof(why), &error))
			config_say(c, true, "[GPU %s]: %s", c->gpus[i].name, why);
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		if (d->gpus[i].used)
			apply_gpu(c, &d->gpus[i]);
}

/* The one that is always there has what it had before a file said anything of it. */
static void reset_default(struct config *c, struct vgpu *vgpu)
{
	struct wanted_vgpu nothing = { .vgpu = { .name = "default" } };

	apply_vgpu(c, &nothing);
	vgpu->configured = false;
}

static void apply_vgpus(struct config *c)
{
	struct daemon *d = c->daemon;
	struct vgpu *standard = objects_vgpu_find(d, "default");
	bool was_configured = standard && standard->configured;

	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		d->vgpus[i].configured = false;
	for (uint32_t i = 0; i < c->vgpus_count; i++) {
		struct vgpu *old = objects_vgpu_find(d, c->vgpus[i].vgpu.name);

		if (old)
			/* named still, even if the change should be refused */
			old->configured = true;
	}
	/* What is gone makes room before what is new asks for it. */
	for (uint32_t i = 0; i < VGPUS_MAX; i++) {
		struct vgpu *vgpu = &d->vgpus[i];
		char name[RTXG_NAME_MAX + 1];

		if (!vgpu->used || vgpu->origin != ORIGIN_CONFIG || vgpu->configured)
			continue;
		strcpy(name, vgpu->name);
		if (objects_vgpu_remove(d, vgpu))
			config_say(
				c, false,
				"vGPU %s is configured no longer; it stays while tasks are in it",
				name);
		else
			config_say(c, false, "vGPU %s is configured no longer and was removed",
				   name);
	}
	if (was_configured && !standard->configured)
		reset_default(c, standard);
	for (uint32_t i = 0; i < c->vgpus_count; i++)
		apply_vgpu(c, &c->vgpus[i]);
}

static void apply_matches(struct config *c)
{
	struct daemon *d = c->daemon;

	d->matches_count = 0;
	for (uint32_t i = 0; i < c->matches_count; i++) {
		struct match *m = &c->matches[i];

		if (!m->vgpu[0])
			config_say(c, true, "%s: [Match] names no VGPU=", m->source);
		else if (!objects_vgpu_find(d, m->vgpu))
			config_say(c, true, "%s: [Match] names vGPU %s, which does not exist",
				   m->source, m->vgpu);
		else
			d->matches[d->matches_count++] = *m;
	}
}

static void apply_cgroups(struct config *c)
{
	struct daemon *d = c->daemon;
	char why[600];

	binding_forget_configured(d);
	for (uint32_t i = 0; i < c->cgroups_count; i++) {
		const struct wanted_cgroup *g = &c->cgroups[i];
		const char *name = c->vgpus[g->vgpu].vgpu.name;
		struct vgpu *vgpu = objects_vgpu_find(d, name);

		/* Why there is no such vGPU was said. */
		if (vgpu && binding_add(d, g->name, vgpu, 0, true, why, sizeof(why)))
			config_say(c, true, "vGPU %s: Cgroup=%s: %s", name, g->name, why);
	}
}

/* Their numbers are looked up while the loop goes on. */
static void apply_users(struct daemon *d)
{
	uid_t ignored;

	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		for (uint32_t n = 0; d->vgpus[i].used && n < d->vgpus[i].users_count; n++)
			names_user(d->vgpus[i].users[n], &ignored);
	for (uint32_t i = 0; i < d->matches_count; i++)
		if (d->matches[i].user[0])
			names_user(d->matches[i].user, &ignored);
	names_refresh();
}

int config_load(struct daemon *d, json_t *messages, json_t *changes)
{
	struct config *c = calloc(1, sizeof(*c));
	uint32_t errors;

	if (!c)
		return -ENOMEM;
	c->daemon = d;
	c->messages = messages;
	c->changes = changes;
	c->tasks_per_user = d->host->here ? 1024 : 0; /* 0: as the module was told */
	c->idle_exit_ns = RTXG_TIME_NEVER;
	d->config_fail[0] = 0;
	config_read(c);

	d->fail_closed = c->fail_closed;
	d->gpus_by_claim = c->gpus_by_claim;
	d->tasks_per_user = (uint32_t)c->tasks_per_user;
	if (c->idle_exit_ns != RTXG_TIME_NEVER)
		d->idle_exit_ns = c->idle_exit_ns;
	ceiling_configure(d, &c->ceilings);
	interrupts_configure(d, &c->interrupts);
	d->host->look(d);
	/* All GPUs before the shares of them. */
	apply_gpus(c);
	apply_vgpus(c);
	drop_pools(c);
	for (uint32_t i = 0; i < c->pools_count; i++)
		apply_pool(c, &c->pools[i]);
	apply_matches(c);
	apply_cgroups(c);
	apply_users(d);
	place_all(d);
	d->host->configured(d);
	errors = c->errors;
	d->config_read = true;
	free(c);
	return (int)errors;
}
