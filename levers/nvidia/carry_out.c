// SPDX-License-Identifier: MIT
/*
 * carry_out.c - hands events to the slice policy and carries its actions out: stops, resumes, sets
 * slices. A GPU on which the driver fails is given up. May not: decide who runs.
 */
#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include "act.h"
#include "carry_out.h"
#include "state.h"

/* actions that the policy hands out in one step */
#define ACTIONS 64

void nv_give_up(struct lever_nvidia *l, struct nv_gpu *g, const char *why)
{
	if (g->lost)
		return;
	g->lost = true;
	nv_log(l, LEVER_NVIDIA_ERROR,
	       "gpu %u: %s: the lever lets go of it; programs run as if rtxg were not there",
	       (unsigned int)(g - l->gpu), why);
	for (uint32_t i = 0; i < g->high; i++)
		if (g->context[i].process && g->context[i].stopped) {
			struct nv_batch b = { 0 };

			if (!nv_batch_add(&b, g->context[i].process, g->rm.device_instance))
				nv_resume(&g->rm, &l->journal, &b);
			nv_batch_free(&b);
			g->context[i].stopped = false;
		}
}

static void acted(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, uint64_t began,
		  uint64_t what)
{
	if (l->ops.acted)
		l->ops.acted(l->ops.ctx, (uint32_t)(g - l->gpu), c->process->pid, began,
			     nv_now(l) - began, what);
}

static void failed(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, const char *what,
		   int err);

static int stop_or_go_once(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context **contexts,
			   unsigned int count, bool stop, bool leave)
{
	struct nv_batch b = { 0 };
	uint64_t began = nv_now(l);
	unsigned int i;
	int err = 0;

	for (i = 0; i < count && !err; i++)
		err = nv_batch_add(&b, contexts[i]->process, g->rm.device_instance);
	if (!err && b.count)
		err = stop ? nv_suspend(&g->rm, &l->journal, &b, leave)
			   : nv_resume(&g->rm, &l->journal, &b);
	nv_batch_free(&b);
	if (err)
		return err;
	for (i = 0; i < count; i++) {
		contexts[i]->stopped = stop;
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

/*
 * Neighbours of one kind go to the driver in one call; if that fails, each alone, so that one bad
 * apple is found.
 */
void nv_stop_or_go(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context **contexts,
		   unsigned int count, bool stop, bool leave)
{
	unsigned int i;
	int err;

	if (!count)
		return;
	err = stop_or_go_once(l, g, contexts, count, stop, leave);
	if (!err)
		return;
	for (i = 0; i < count && !g->lost; i++) {
		if (!contexts[i]->process)
			continue;
		err = stop_or_go_once(l, g, &contexts[i], 1, stop, leave);
		if (err)
			failed(l, g, contexts[i], stop ? "stop" : "resume", err);
	}
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
			uint64_t began = nv_now(l);
			int err = nv_set_slice(&g->rm, &l->journal, c->process,
					       g->rm.device_instance, (uint32_t)(a[i].ns / 1000));

			if (err) {
				failed(l, g, c, "set the slice of", err);
				continue;
			}
			c->slice_ns = a[i].ns;
			l->stats.slices++;
			l->stats.slice_ns += nv_now(l) - began;
			acted(l, g, c, began, a[i].ns);
		}
	}
	nv_beat(l);
}

int nv_step(struct lever_nvidia *l, struct nv_gpu *g, const struct rtxg_slice_event *e)
{
	struct rtxg_slice_action a[ACTIONS];
	int n;

	do {
		uint64_t now = nv_now(l);

		g->stepped = now > g->stepped ? now : g->stepped;
		n = rtxg_slice_step(g->slice, g->stepped, e, a, ACTIONS);
		if (n < 0)
			return e ? n : 0;
		carry_out(l, g, a, n);
		e = NULL;
	} while (n == ACTIONS); /* the policy may have more of them */
	return 0;
}

void nv_decide(struct lever_nvidia *l, struct nv_gpu *g, const struct rtxg_slice_event *e)
{
	int err = nv_step(l, g, e);

	if (err && e->type != RTXG_SLICE_EV_START && e->type != RTXG_SLICE_EV_END)
		nv_log(l, LEVER_NVIDIA_WARNING, "policy refused event %u: %s", e->type,
		       strerror(-err));
}

static void failed(struct lever_nvidia *l, struct nv_gpu *g, struct nv_context *c, const char *what,
		   int err)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_FAILED,
				      .context = (uint32_t)(c - g->context) };

	l->stats.failures++;
	if (err == -ENODEV) {
		nv_give_up(l, g, "the device is lost");
		return;
	}
	/* A process that is just ending answers in many ways; its end will be reported. */
	if (err == -ESRCH || err == -ENOENT || err == -EBADF || err == -EMFILE)
		nv_log(l, LEVER_NVIDIA_DEBUG, "could not %s pid %u: %s (is it ending?)", what,
		       c->process->pid, strerror(-err));
	else
		nv_log(l, LEVER_NVIDIA_WARNING,
		       "could not %s pid %u (%s): %s, driver status 0x%x %s; it is left alone",
		       what, c->process->pid, c->process->comm, strerror(-err), l->rm.status,
		       nv_rm_status_name(l->rm.status));
	c->unmanaged = "the driver refused to act on it; see the log";
	nv_decide(l, g, &e);
}

void nv_arm(struct lever_nvidia *l)
{
	struct itimerspec t = { 0 };
	uint64_t at = l->next_watch;

	for (uint32_t i = 0; i < l->gpus; i++)
		if (!l->gpu[i].lost && l->gpu[i].timer < at)
			at = l->gpu[i].timer;
	t.it_value.tv_sec = (time_t)(at / 1000000000u);
	t.it_value.tv_nsec = (long)(at % 1000000000u);
	if (!t.it_value.tv_sec && !t.it_value.tv_nsec)
		t.it_value.tv_nsec = 1;
	timerfd_settime(l->timerfd, TFD_TIMER_ABSTIME, &t, NULL);
}
