// SPDX-License-Identifier: MIT
/*
 * carry_out.c - hands events to the slice policy and carries its actions out: stops, resumes, sets
 * slices. A GPU on which the driver fails is given up. May not: decide who runs.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "act.h"
#include "carry_out.h"
#include "sight.h"
#include "state.h"

/* actions that the policy hands out in one step */
#define ACTIONS 64

/* so long after its last channel came a context that is refused may still be being built */
#define BUILT_NS 10000000000ull

static void resume_all_of(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c)
{
	const struct nv_refusal *stop = &c->refusal[NV_ACTION(RTXG_SLICE_SUSPEND)];
	bool young = stop->times && !stop->final && nv_now(l) < c->sight.changed + BUILT_NS;
	struct nv_batch b = { 0 };

	if (!nv_batch_add(&b, c->process, g->rm.device_instance, NV_STOPPED) && b.count) {
		if (young && !g->lost)
			nv_resume_built(&g->rm, &l->journal, &b);
		else
			nv_resume(&g->rm, &l->journal, &b);
	}
	nv_batch_free(&b);
}

void nv_give_up(struct lever_nvidia *l, struct nv_gpu *g, const char *why)
{
	if (g->lost)
		return;
	g->lost = true;
	nv_log(l, LEVER_NVIDIA_ERROR,
	       "gpu %u: %s: the lever lets go of it; programs run as if rtxg were not there",
	       (unsigned int)(g - l->gpu), why);
	for (uint32_t i = 0; i < g->high; i++)
		if (g->context[i].process) {
			resume_all_of(l, g, &g->context[i]);
			g->context[i].stopped = false;
			nv_sight_close(l, g, &g->context[i]);
		}
}

static void acted(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, uint64_t began,
		  uint64_t what)
{
	if (l->ops.acted)
		l->ops.acted(l->ops.ctx, (uint32_t)(g - l->gpu), c->process->pid, began,
			     nv_now(l) - began, what);
}

static const char *const action_names[NV_ACTIONS] = { "set the slice of", "stop", "resume" };

/* For people: what of this context cannot be had, and why. */
static void give_reason(struct nv_context *c)
{
	const struct nv_refusal *slice = &c->refusal[NV_ACTION(RTXG_SLICE_SET)];
	const struct nv_refusal *stop = &c->refusal[NV_ACTION(RTXG_SLICE_SUSPEND)];
	const struct nv_refusal *r = stop->final ? stop : slice->final ? slice : NULL;

	c->reason[0] = '\0';
	for (uint32_t i = 0; i < NV_ACTIONS && !r; i++)
		if (c->refusal[i].times)
			r = &c->refusal[i];
	if (!r)
		return;
	snprintf(c->reason, sizeof(c->reason), "the driver does not %s it (%s, status 0x%x %s): %s",
		 r == slice  ? "set the slice of"
		 : r == stop ? "stop"
			     : "resume",
		 strerror(-r->err), r->status, nv_rm_status_name(r->status),
		 stop->final && slice->final ? "it cannot be governed; restart it"
		 : r->final		     ? "it is governed by the other means alone"
					     : "it is tried again");
}

/*
 * A refusal is told to the policy when all actions of the step have been carried out; the policy
 * decides when it is tried again.
 */
static void refused(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, uint32_t type,
		    int err)
{
	struct nv_refusal *r = &c->refusal[NV_ACTION(type)];
	enum nv_rm_refusal kind = nv_rm_refusal(err);
	bool first = !r->times;

	l->stats.failures++;
	if (err == -ENODEV) {
		nv_give_up(l, g, "the device is lost");
		return;
	}
	r->times++;
	r->err = err;
	r->status = l->rm.status;
	r->final = kind == NV_RM_FINAL || (kind == NV_RM_DOUBTFUL && r->times >= NV_DOUBTFUL_LIMIT);
	if (r->final)
		l->stats.final++;
	give_reason(c);
	if (r->final)
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "could not %s pid %u (%s): %s, driver status 0x%x %s, and it will not do so "
		       "later",
		       action_names[NV_ACTION(type)], c->process->pid, c->process->comm,
		       strerror(-err), r->status, nv_rm_status_name(r->status));
	else if (first)
		nv_log(l, LEVER_NVIDIA_DEBUG,
		       "could not %s pid %u (%s) yet: %s, driver status 0x%x %s; it is tried again",
		       action_names[NV_ACTION(type)], c->process->pid, c->process->comm,
		       strerror(-err), r->status, nv_rm_status_name(r->status));
	if (g->refusals < LEVER_NVIDIA_CONTEXTS) {
		g->refused[g->refusals].context = (uint32_t)(c - g->context);
		g->refused[g->refusals++].value = type | (r->final ? RTXG_SLICE_FINAL : 0);
	}
}

static void went_well(struct lever_nvidia *l, struct nv_context *c, uint32_t type)
{
	struct nv_refusal *r = &c->refusal[NV_ACTION(type)];

	if (!r->times)
		return;
	nv_log(l, LEVER_NVIDIA_DEBUG, "could %s pid %u (%s) after %u refusals",
	       action_names[NV_ACTION(type)], c->process->pid, c->process->comm, r->times);
	memset(r, 0, sizeof(*r));
	give_reason(c);
}

/* Of a context that is to be stopped: what carries work, if that is known, else everything. */
static enum nv_which to_stop(const struct lever_nvidia *l, const struct nv_context *c)
{
	return nv_sight_knows_hot(l, c) ? NV_HOT : NV_ALL;
}

/*
 * `alone`: if it is refused, each of them is asked for alone. So what the driver may have stopped
 * of them is not let go before; it is let go as often as it was asked for.
 */
static int stop_or_go_once(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context **contexts,
			   unsigned int count, bool stop, bool leave, bool alone)
{
	struct nv_batch b = { 0 };
	uint64_t began = nv_now(l);
	uint32_t status;
	unsigned int i;
	int err = 0;

	for (i = 0; i < count && !err; i++)
		err = nv_batch_add(&b, contexts[i]->process, g->rm.device_instance,
				   stop ? to_stop(l, contexts[i]) : NV_STOPPED);
	if (!err && b.count)
		err = stop ? nv_try_suspend(&g->rm, &l->journal, &b, leave)
			   : nv_resume(&g->rm, &l->journal, &b);
	if (err && stop && !alone && b.count) {
		status = g->rm.rm->status;
		/* If that is refused, too, the watch does it. */
		nv_resume_built(&g->rm, &l->journal, &b);
		g->rm.rm->status = status; /* of what failed, for the message */
	}
	nv_batch_free(&b);
	if (err)
		return err;
	for (i = 0; i < count; i++) {
		contexts[i]->stopped = stop;
		if (stop)
			nv_sight_stopped(l, contexts[i], to_stop(l, contexts[i]) == NV_HOT);
		went_well(l, contexts[i], stop ? RTXG_SLICE_SUSPEND : RTXG_SLICE_RESUME);
		acted(l, g, contexts[i], began, stop ? 0 : UINT64_MAX);
	}
	if (stop) {
		l->stats.suspends += count;
		l->stats.suspend_ns += nv_now(l) - began;
	} else {
		l->stats.resumes += count;
		l->stats.resume_ns += nv_now(l) - began;
	}
	return 0;
}

/* In one call; if that fails, each alone. */
static void together(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context **contexts,
		     unsigned int count, bool stop, bool leave)
{
	int err = count ? stop_or_go_once(l, g, contexts, count, stop, leave, count > 1) : 0;

	for (unsigned int i = 0; i < count && err && !g->lost; i++) {
		int one = err;

		if (!contexts[i]->process)
			continue;
		if (count > 1)
			one = stop_or_go_once(l, g, &contexts[i], 1, stop, leave, false);
		if (one)
			refused(l, g, contexts[i], stop ? RTXG_SLICE_SUSPEND : RTXG_SLICE_RESUME,
				one);
	}
}

/*
 * Neighbours of one kind go to the driver in one call; if that fails, each alone, so that one bad
 * process does not keep the others from their shares. One that was refused last time is asked for
 * by itself, after the others: most likely it is still being built, and would spoil their call.
 */
void nv_stop_or_go(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context **contexts,
		   unsigned int count, bool stop, bool leave)
{
	const uint32_t type = stop ? RTXG_SLICE_SUSPEND : RTXG_SLICE_RESUME;
	struct nv_context *apart[LEVER_NVIDIA_CONTEXTS];
	unsigned int good = 0, bad = 0;

	for (unsigned int i = 0; i < count; i++) {
		if (contexts[i]->refusal[NV_ACTION(type)].times)
			apart[bad++] = contexts[i];
		else
			contexts[good++] = contexts[i];
	}
	together(l, g, contexts, good, stop, leave);
	for (unsigned int i = 0; i < bad && !g->lost; i++)
		if (apart[i]->process)
			together(l, g, &apart[i], 1, stop, leave);
}

void nv_stop_rest(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c)
{
	struct nv_batch b = { 0 };
	int err;

	if (!c->stopped || g->lost || !l->enabled)
		return;
	err = nv_batch_add(&b, c->process, g->rm.device_instance, NV_RUNNING);
	if (!err && b.count)
		err = nv_suspend(&g->rm, &l->journal, &b, false);
	if (!err && b.count)
		l->stats.rests++;
	nv_batch_free(&b);
	/* Refused (it is being built, say): it is tried again when it is looked at next. */
	nv_sight_stopped(l, c, err != 0);
}

void nv_stop_again(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c)
{
	struct nv_batch b = { 0 };
	int err;

	/* It may have been let go by another, or not: now it is, and is stopped once. */
	resume_all_of(l, g, c);
	err = nv_batch_add(&b, c->process, g->rm.device_instance, NV_ALL);
	if (!err && b.count)
		err = nv_suspend(&g->rm, &l->journal, &b, false);
	nv_batch_free(&b);
	if (err)
		refused(l, g, c, RTXG_SLICE_SUSPEND, err);
}

void nv_let_go_for_a_while(struct lever_nvidia *l, struct nv_process *p)
{
	for (uint32_t i = 0; p && i < l->gpus; i++) {
		struct nv_batch b = { 0 };

		if (!nv_batch_add(&b, p, l->gpu[i].rm.device_instance, NV_STOPPED) && b.count)
			nv_resume(&l->gpu[i].rm, &l->journal, &b);
		nv_batch_free(&b);
	}
}

void nv_stop_as_before(struct lever_nvidia *l, const struct nv_process *p)
{
	for (uint32_t i = 0; p && i < l->gpus; i++) {
		struct nv_context *c = nv_context_of(&l->gpu[i], p);

		if (c && c->stopped)
			nv_stop_again(l, &l->gpu[i], c);
	}
}

void nv_let_strays_go(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c)
{
	if (!c->stopped && !g->lost)
		resume_all_of(l, g, c);
}

static int slice_context(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c,
			 uint64_t ns)
{
	uint64_t began = nv_now(l);
	int err = nv_set_slice(&g->rm, &l->journal, c->process, g->rm.device_instance,
			       (uint32_t)(ns / 1000));

	if (err) {
		refused(l, g, c, RTXG_SLICE_SET, err);
		return err;
	}
	went_well(l, c, RTXG_SLICE_SET);
	c->slice_ns = ns;
	l->stats.slices++;
	l->stats.slice_ns += nv_now(l) - began;
	acted(l, g, c, began, ns);
	return 0;
}

void nv_slice_again(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c)
{
	if (c->slice_ns && !g->lost && l->enabled)
		slice_context(l, g, c, c->slice_ns);
}

static void carry_out(struct lever_nvidia *l, struct nv_gpu *g, const struct rtxg_slice_action *a,
		      int n)
{
	struct nv_context *group[ACTIONS];
	unsigned int count = 0;
	bool leave = false;
	uint32_t kind = 0;

	for (int i = 0; i <= n; i++) {
		uint32_t type = i < n ? a[i].type : 0;
		struct nv_context *c = i < n && a[i].context < LEVER_NVIDIA_CONTEXTS
					       ? &g->context[a[i].context]
					       : NULL;

		if (count &&
		    (type != kind || (type == RTXG_SLICE_SUSPEND && leave != (a[i].ns != 0)))) {
			nv_stop_or_go(l, g, group, count, kind == RTXG_SLICE_SUSPEND, leave);
			count = 0;
		}
		if (type == RTXG_SLICE_ARM) {
			g->timer = a[i].ns;
			g->unread = a[i].context != RTXG_SLICE_NONE;
			continue;
		}
		if (!c || !c->process || g->lost || !l->enabled)
			continue;
		if (type == RTXG_SLICE_SUSPEND || type == RTXG_SLICE_RESUME) {
			if (type == RTXG_SLICE_SUSPEND && !l->guarded &&
			    !l->options.allow_unguarded)
				continue;
			kind = type;
			leave = type == RTXG_SLICE_SUSPEND && a[i].ns;
			group[count++] = c;
		} else if (type == RTXG_SLICE_SET) {
			slice_context(l, g, c, a[i].ns);
		}
	}
	nv_beat(l);
}

static int step_once(struct lever_nvidia *l, struct nv_gpu *g, const struct rtxg_slice_event *e)
{
	struct rtxg_slice_action a[ACTIONS];
	int n;

	do {
		uint64_t now = nv_now(l);

		g->stepped = now > g->stepped ? now : g->stepped;
		g->steps++;
		n = rtxg_slice_step(g->slice, g->stepped, e, a, ACTIONS);
		if (n < 0)
			return e ? n : 0;
		carry_out(l, g, a, n);
		e = NULL;
	} while (n == ACTIONS); /* the policy may have more of them */
	return 0;
}

int nv_step(struct lever_nvidia *l, struct nv_gpu *g, const struct rtxg_slice_event *e)
{
	int err = step_once(l, g, e);

	if (g->stepping)
		return err;
	/* What was refused meanwhile; the policy's answers may be refused in turn. */
	g->stepping = true;
	while (g->refusals && !g->lost) {
		struct rtxg_slice_event f = { .type = RTXG_SLICE_EV_FAILED };

		g->refusals--;
		f.context = g->refused[g->refusals].context;
		f.value = g->refused[g->refusals].value;
		if (g->context[f.context].process)
			step_once(l, g, &f);
	}
	g->refusals = 0;
	g->stepping = false;
	return err;
}

void nv_decide(struct lever_nvidia *l, struct nv_gpu *g, const struct rtxg_slice_event *e)
{
	int err = nv_step(l, g, e);

	if (err && e->type != RTXG_SLICE_EV_START && e->type != RTXG_SLICE_EV_END)
		nv_log(l, LEVER_NVIDIA_WARNING, "policy refused event %u: %s", e->type,
		       strerror(-err));
}
