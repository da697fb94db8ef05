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
#include "act.h"
#include "carry_out.h"
#include "guardian.h"
#include "helper.h"
#include "state.h"
#include "vgpus.h"
#include "warm_up.h"
#include "watch.h"

#define WATCH_NS     250000000ull
#define CALIBRATE_NS 10000000000ull

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
				nv_stop_or_go(l, &l->gpu[i], &c, 1, true, false);
		}
}

void nv_guard(struct lever_nvidia *l)
{
	const char *path = l->options.guardian;
	char own[PATH_MAX];
	int err;

	if (l->options.no_guardian)
		return;
	if (!path)
		path = nv_helper_path("rtxg-guardian", own, sizeof(own));
	err = nv_guardian_start(path, &l->journal, &l->guardian, &l->guardian_fd);
	l->guarded = !err;
	l->guardian_error = err;
	if (err) {
		l->guardian = -1;
		nv_log(l, LEVER_NVIDIA_ERROR,
		       "cannot start the guardian (%s): %s; nothing will be stopped, shares are "
		       "kept by slices alone",
		       path, strerror(-err));
		return;
	}
	struct epoll_event e = { .events = EPOLLIN, .data.u32 = NV_SOURCE_GUARDIAN };

	epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->guardian_fd, &e);
}

void nv_guardian_died(struct lever_nvidia *l)
{
	nv_log(l, LEVER_NVIDIA_ERROR,
	       "the guardian has died; resuming everything, then starting another");
	l->guarded = false;
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, l->guardian_fd, NULL);
	for (uint32_t i = 0; i < l->gpus; i++)
		for (uint32_t k = 0; k < l->gpu[i].high; k++) {
			struct nv_context *c = &l->gpu[i].context[k];

			if (c->process && c->stopped)
				nv_stop_or_go(l, &l->gpu[i], &c, 1, false, false);
		}
	nv_guardian_stop(&l->journal, l->guardian, l->guardian_fd);
	nv_guard(l);
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
			if (l->gpu[i].rm.pci_domain == domain && l->gpu[i].rm.pci_bus == bus)
				nv_give_up(l, &l->gpu[i], "an Xid was reported");
	}
}

/*
 * CUDA sets a slice of its own while it builds a context, and a program may do so later: what was
 * decided is set again.
 */
static void check_slices(struct lever_nvidia *l, struct nv_gpu *g)
{
	for (uint32_t i = 0; i < g->high && !g->lost; i++) {
		struct nv_context *c = &g->context[i];
		uint32_t us;

		if (!c->process || !c->slice_ns || c->stopped || c->unmanaged)
			continue;
		if (nv_get_slice(&g->rm, c->process, g->rm.device_instance, &us) ||
		    us == c->slice_ns / 1000)
			continue;
		l->stats.slices_lost++;
		nv_set_slice(&g->rm, &l->journal, c->process, g->rm.device_instance,
			     (uint32_t)(c->slice_ns / 1000));
	}
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
	nv_look_for_warm(l);
	again_after_hang(l);
	if (now >= l->next_calibrate) {
		l->next_calibrate = now + CALIBRATE_NS;
		nv_assigned_prune(&l->assigned);
		for (uint32_t i = 0; i < l->gpus; i++)
			if (l->gpu[i].has_log && !l->gpu[i].lost)
				nv_fecs_calibrate(&l->gpu[i].fecs);
	}
	if (l->enabled)
		for (uint32_t i = 0; i < l->gpus; i++)
			check_slices(l, &l->gpu[i]);
	nv_save_assigned(l);
	l->next_watch = now + WATCH_NS;
}

void nv_watch_begin(struct lever_nvidia *l)
{
	l->next_calibrate = nv_now(l) + CALIBRATE_NS;
	l->next_watch = nv_now(l) + WATCH_NS;
}
