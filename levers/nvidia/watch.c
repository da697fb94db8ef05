// SPDX-License-Identifier: MIT
/*
 * watch.c - what is looked after beside the scheduling: the guardian, the kernel log (Xid), slices
 * that a program changed by itself, the clock of the log. May not: decide who runs.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "../../bpf/discovery.h"
#include "act.h"
#include "carry_out.h"
#include "contexts.h"
#include "guardian.h"
#include "helper.h"
#include "policy.h"
#include "probe.h"
#include "pump.h"
#include "rtxg_clock.h"
#include "state.h"
#include "unknown.h"
#include "vgpus.h"
#include "warm_up.h"
#include "watch.h"

#define WATCH_NS     250000000ull
#define CALIBRATE_NS 10000000000ull
#define YOUNG_NS     10000000000ull /* a context is still being built, or may be */
#define CHECK_NS     2000000000ull  /* between looks at the slice of an old context */
#define CHECKS_NS    20000000ull    /* no look at a slice begins so long after the first */
#define CALM_NS	     1000000000ull  /* between watches while nothing is stopped */
#define IDLE_NS	     5000000000ull  /* while there is no context */
/* pauses between attempts to start a guardian */
#define GUARD_NS     1000000000ull
#define GUARD_MAX_NS 60000000000ull
#define GUARD_PART   20u /* of the time goes into them at most; each may wait for the driver */

static void again_after_hang(struct lever_nvidia *l)
{
	uint32_t let_go =
		l->journal.page ? __atomic_load_n(&l->journal.page->let_go, __ATOMIC_ACQUIRE) : 0;

	if (let_go == l->let_go)
		return;
	l->let_go = let_go;
	nv_log(l, LEVER_NVIDIA_WARNING,
	       "the guardian resumed everything while the daemon hung; what ought to be stopped is "
	       "stopped again");
	for (uint32_t i = 0; i < l->gpus; i++)
		for (uint32_t k = 0; k < l->gpu[i].high; k++) {
			struct nv_context *c = &l->gpu[i].context[k];

			if (c->process && c->stopped)
				nv_stop_again(l, &l->gpu[i], c);
		}
}

static void guard(struct lever_nvidia *l)
{
	const char *path = l->options.guardian;
	char own[PATH_MAX];
	int err;

	if (l->options.no_guardian)
		return;
	if (!path)
		path = nv_helper_path("rtxg-guardian", own, sizeof(own));
	err = nv_guardian_start(&l->ops, path, &l->journal, &l->guardian, &l->guardian_fd);
	l->guarded = !err;
	l->guardian_error = err;
	if (err) {
		l->guardian = -1;
		if (!l->guard_pause)
			nv_log(l, LEVER_NVIDIA_ERROR,
			       "cannot start the guardian (%s): %s; it is tried again, and until "
			       "then nothing is stopped, shares are kept by slices alone",
			       path, strerror(-err));
		return;
	}
	struct epoll_event e = { .events = EPOLLIN, .data.u32 = NV_SOURCE_GUARDIAN };

	epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->guardian_fd, &e);
}

/* Without a guardian nothing is stopped: the policy that begins next decides knowing that. */
static void let_stop(struct lever_nvidia *l, bool may)
{
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct nv_gpu *g = &l->gpu[i];

		if (!may)
			g->cannot_now |= g->can & RTXG_SLICE_CAN_SUSPEND;
		g->can = may ? g->can | g->cannot_now : g->can & ~g->cannot_now;
		g->cannot_now = may ? 0 : g->cannot_now;
	}
}

static void may_stop(struct lever_nvidia *l, bool may)
{
	int err;

	let_stop(l, may);
	err = l->enabled ? nv_restart_policy(l) : 0;
	if (err)
		nv_log(l, LEVER_NVIDIA_ERROR, "the slice policy could not be started again: %s",
		       strerror(-err));
	nv_probe_guardian(l);
}

/* One could not be started: later, for what it lacked may be there again. */
static void guard_later(struct lever_nvidia *l, uint64_t began)
{
	uint64_t now = nv_now(l), pause = l->guard_pause ? 2 * l->guard_pause : GUARD_NS;

	l->guard_pause = pause < GUARD_MAX_NS ? pause : GUARD_MAX_NS;
	pause = (now - began) * GUARD_PART;
	l->guard_again = now + (pause > l->guard_pause ? pause : l->guard_pause);
}

void nv_guard_first(struct lever_nvidia *l)
{
	uint64_t began = nv_now(l);

	guard(l);
	if (l->guarded || l->options.allow_unguarded)
		return;
	let_stop(l, false);
	if (!l->options.no_guardian)
		guard_later(l, began);
}

static void guard_again(struct lever_nvidia *l)
{
	uint64_t began = nv_now(l);

	if (!l->guard_again || began < l->guard_again)
		return;
	guard(l);
	if (!l->guarded) {
		guard_later(l, began);
		return;
	}
	l->guard_again = l->guard_pause = 0;
	nv_log(l, LEVER_NVIDIA_WARNING, "there is a guardian again: programs are stopped as ever");
	may_stop(l, true);
}

void nv_guardian_died(struct lever_nvidia *l)
{
	uint64_t was_stopped[RM_GPUS_MAX][LEVER_NVIDIA_CONTEXTS / 64] = { 0 }, began;

	nv_log(l, LEVER_NVIDIA_ERROR,
	       "the guardian has died; resuming everything, then starting another");
	l->guarded = false;
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, l->guardian_fd, NULL);
	for (uint32_t i = 0; i < l->gpus; i++)
		for (uint32_t k = 0; k < l->gpu[i].high; k++) {
			struct nv_context *c = &l->gpu[i].context[k];

			if (!c->process || !c->stopped)
				continue;
			was_stopped[i][k / 64] |= 1ull << (k % 64);
			nv_stop_or_go(l, &l->gpu[i], &c, 1, false, false);
		}
	nv_guardian_stop(&l->journal, l->guardian, l->guardian_fd);
	began = nv_now(l);
	guard(l);
	if (!l->guarded && !l->options.allow_unguarded) {
		/* The policy begins again, and takes all to run: the watch lets go of the rest. */
		for (uint32_t i = 0; i < l->gpus; i++)
			for (uint32_t k = 0; k < l->gpu[i].high; k++)
				l->gpu[i].context[k].stopped = false;
		guard_later(l, began);
		may_stop(l, false);
		return;
	}
	/* The policy takes them to be stopped. */
	for (uint32_t i = 0; i < l->gpus && l->guarded; i++)
		for (uint32_t k = 0; k < l->gpu[i].high; k++)
			if (was_stopped[i][k / 64] >> (k % 64) & 1) {
				l->gpu[i].context[k].stopped = true;
				nv_stop_again(l, &l->gpu[i], &l->gpu[i].context[k]);
			}
}

/* Kernel log: an Xid is the driver's word for "something went wrong on this GPU". */
void nv_read_kmsg(struct lever_nvidia *l)
{
	char buf[2048];
	ssize_t n;

	while ((n = read(l->kmsg, buf, sizeof(buf) - 1)) > 0 || (n < 0 && errno == EPIPE)) {
		char *xid, *end;
		unsigned int domain = 0, bus = 0, slot = 0;
		int number;

		if (n < 0)
			continue;
		buf[n] = '\0';
		xid = strstr(buf, "NVRM: Xid");
		if (!xid)
			continue;
		end = strchr(xid, '\n');
		if (end)
			*end = '\0';
		l->stats.xids++;
		nv_log(l, LEVER_NVIDIA_ERROR, "%s", xid);
		if (sscanf(xid, "NVRM: Xid (PCI:%x:%x:%x): %d", &domain, &bus, &slot, &number) != 4)
			continue;
		/*
		 * Faults of a program end that program; the others are the GPU's, and then the
		 * lever does not stand in the way.
		 */
		if (number == 13 || number == 31 || number == 43 || number == 45 || number == 68 ||
		    number == 69)
			continue;
		for (uint32_t i = 0; i < l->gpus; i++)
			if (l->gpu[i].rm.pci_domain == domain && l->gpu[i].rm.pci_bus == bus &&
			    l->gpu[i].rm.pci_slot == slot)
				nv_give_up(l, &l->gpu[i], "an Xid was reported");
	}
}

/*
 * CUDA sets a slice of its own while it builds a context, and a program may do so later: what was
 * decided is set again. A context that is young is looked at each time, an old one now and then.
 * Each look is a call. Where calls wait long for the driver's lock, the rest have theirs next time.
 */
static void check_slices(struct lever_nvidia *l, struct nv_gpu *g, uint64_t now)
{
	uint64_t began = nv_now(l);
	uint32_t from = g->check_from;

	for (uint32_t i = 0; i < g->high && !g->lost; i++)
		if (g->context[i].process)
			nv_let_strays_go(l, g, &g->context[i]);
	for (uint32_t n = 0; n < g->high && !g->lost; n++) {
		uint32_t i = (from + n) % g->high, us, wanted;
		struct nv_context *c = &g->context[i];

		if (nv_now(l) > began + CHECKS_NS) {
			g->check_from = i;
			return;
		}
		if (!c->process || !c->slice_ns || c->stopped ||
		    c->refusal[NV_ACTION(RTXG_SLICE_SET)].times ||
		    (now > c->known + YOUNG_NS && now < c->checked + CHECK_NS))
			continue;
		c->checked = now;
		wanted = (uint32_t)(c->slice_ns / 1000);
		if (nv_get_slice(&g->rm, c->process, g->rm.device_instance, wanted, &us) ||
		    us == wanted)
			continue;
		l->stats.slices_lost++;
		nv_slice_again(l, g, c);
	}
}

/*
 * Who was put where, against what /proc says now. There may be thousands of such processes: each
 * watch looks at some of them.
 */
static void look_at_assigned(struct lever_nvidia *l)
{
	if (l->pruning)
		l->pruning = !nv_assigned_prune(&l->assigned, rtxg_now_ns() + NV_PIECE_NS);
	if (l->inheriting && nv_assigned_inherit(&l->assigned, rtxg_now_ns() + NV_PIECE_NS)) {
		l->inheriting = l->inherit_again;
		l->inherit_again = false;
	}
}

/* A process may have ended just as it was to be followed. */
static void sweep(struct lever_nvidia *l)
{
	l->sweeping = l->sweeping && l->discovery &&
		      discovery_sweep(l->discovery, rtxg_now_ns() + NV_PIECE_NS);
}

/* How long the next watch may be off. */
static uint64_t pause_of(const struct lever_nvidia *l, uint64_t now)
{
	uint64_t pause =
		l->pruning || l->inheriting || l->rescan || l->sweeping ? WATCH_NS : IDLE_NS;

	for (uint32_t i = 0; i < l->gpus; i++)
		for (uint32_t k = 0; k < l->gpu[i].high; k++) {
			const struct nv_context *c = &l->gpu[i].context[k];

			if (!c->process)
				continue;
			if (c->stopped || now < c->known + YOUNG_NS ||
			    l->gpu[i].params[c->vgpu].period_ns)
				return WATCH_NS;
			pause = pause < CALM_NS ? pause : CALM_NS;
		}
	return pause;
}

void nv_watch(struct lever_nvidia *l)
{
	uint64_t now = nv_now(l), calm = now;

	nv_beat(l);
	if (!l->watch_due)
		l->watch_due = now;
	/* One thread acts on all GPUs, so each of them has to be calm. */
	for (uint32_t i = 0; i < l->gpus; i++) {
		uint64_t at = rtxg_slice_calm_at(l->gpu[i].slice, now, l->watch_due);

		calm = at > calm ? at : calm;
	}
	if (calm > now) {
		l->next_watch = calm;
		return;
	}
	l->watch_due = 0;
	/* What no record came of, as of forks that are not followed, makes nothing readable. */
	if (l->pump_again == UINT64_MAX)
		nv_pump(l);
	nv_look_for_warm(l);
	again_after_hang(l);
	guard_again(l);
	nv_adopt_loads(l);
	if (l->prune)
		nv_contexts_prune(l);
	l->prune = false;
	nv_rescan(l);
	if (now >= l->next_calibrate) {
		l->next_calibrate = now + CALIBRATE_NS;
		l->pruning = l->sweeping = true;
		l->prune = true;
		for (uint32_t i = 0; i < l->gpus; i++)
			if (l->gpu[i].has_log && !l->gpu[i].lost)
				nv_fecs_calibrate(&l->gpu[i].fecs);
	}
	if (l->enabled)
		for (uint32_t i = 0; i < l->gpus; i++)
			check_slices(l, &l->gpu[i], now);
	look_at_assigned(l);
	sweep(l);
	nv_save_some(l);
	l->next_watch = now + pause_of(l, now);
}

void nv_watch_begin(struct lever_nvidia *l)
{
	l->next_calibrate = nv_now(l) + CALIBRATE_NS;
	l->next_watch = nv_now(l) + WATCH_NS;
}
