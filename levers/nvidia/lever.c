// SPDX-License-Identifier: MIT
/*
 * lever.c - the NVIDIA lever's loop: what its one descriptor reports goes to the file that it
 * concerns. The lever holds no policy: it turns what the driver says into events of the slice
 * policy, and the policy's actions into calls of the driver.
 */
#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include "carry_out.h"
#include "contexts.h"
#include "demand.h"
#include "fecs.h"
#include "pump.h"
#include "state.h"
#include "switchlog.h"
#include "warm_up.h"
#include "watch.h"
#include "timer.h"
#include "vgpus.h"

#define OLD_NS 20000000ull /* counters that are so old are no longer shown as they are */
/*
 * Reading the log up to now takes the driver's lock, which programs that start and end wait for:
 * beside each reading that takes long there are so many times as long without, up to so much.
 */
#define UNREAD_TIMES 9u
#define UNREAD_MOST  20000000ull

/* The policy's time has come: it decides, as a rule with the log up to now. */
static void due(struct lever_nvidia *l, struct nv_gpu *g, bool unread)
{
	struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_TIMER,
				      .value = unread ? RTXG_SLICE_UNREAD : 0 };

	g->timer = UINT64_MAX;
	if (!unread)
		g->read = nv_now(l);
	if (!unread && g->has_log) {
		uint64_t took, pause;

		l->stats.flushes++;
		if (nv_fecs_flush(&g->fecs) == -ENODEV)
			nv_give_up(l, g, "the device is lost");
		took = nv_now(l) - g->read;
		pause = took < UNREAD_MOST / UNREAD_TIMES ? took * UNREAD_TIMES : UNREAD_MOST;
		g->read_again = g->read + took + pause;
		nv_demand_tell(l); /* that may have taken the driver long */
		nv_switchlog_read(l, g);
	}
	nv_decide(l, g, &e);
}

void lever_nvidia_catch_up(struct lever_nvidia *l)
{
	uint64_t now = nv_now(l);

	for (uint32_t k = 0; k < l->gpus; k++) {
		struct nv_gpu *g = &l->gpu[k];

		if (!g->lost && g->has_log && now > g->read + OLD_NS)
			due(l, g, false);
	}
	nv_arm(l);
}

/* What was stopped stays stopped for so long, and bounds are kept so much later. */
static void note_late(struct lever_nvidia *l, uint64_t due)
{
	uint64_t now = nv_now(l), late = now > due ? now - due : 0;
	uint32_t i = 0;

	while (i < RTXG_SLICE_WAITS - 1 && late > rtxg_slice_wait_limit(i))
		i++;
	l->stats.late[i]++;
	if (late > l->stats.late_most_ns)
		l->stats.late_most_ns = late;
}

int lever_nvidia_dispatch(struct lever_nvidia *l)
{
	struct epoll_event ev[8];
	int n = epoll_wait(l->epoll, ev, 8, 0), i;
	bool told = false;
	uint64_t now;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	l->stats.dispatches++;
	/* First the queues: what is told of then is charged by what is known of them. */
	nv_demand_look(l);
	for (i = 0; i < n; i++) {
		told = told || ev[i].data.u32 != NV_SOURCE_TIMER;
		switch (ev[i].data.u32) {
		case NV_SOURCE_DISCOVERY:
			nv_pump(l);
			break;
		case NV_SOURCE_TIMER:
			if (l->armed)
				note_late(l, l->armed > l->armed_at ? l->armed : l->armed_at);
			l->armed = 0; /* setting it again takes back that it is readable */
			break;
		case NV_SOURCE_KMSG:
			nv_read_kmsg(l);
			break;
		case NV_SOURCE_GUARDIAN:
			nv_guardian_died(l);
			break;
		}
	}
	if (nv_now(l) >= l->pump_again) {
		nv_pump(l);
		told = true;
	}
	if (told) /* that may have taken the driver long */
		nv_demand_look(l);
	now = nv_now(l);
	for (uint32_t k = 0; k < l->gpus; k++) {
		struct nv_gpu *g = &l->gpu[k];

		if (g->lost || now < g->timer)
			continue;
		if (!g->unread && g->has_log && now < g->read_again)
			g->timer = g->read_again;
		else
			due(l, g, g->unread);
	}
	if (nv_now(l) >= l->save_again)
		nv_save_some(l);
	if (nv_now(l) >= l->next_watch)
		nv_watch(l);
	nv_tell_releases(l);
	nv_arm(l);
	for (uint32_t k = 0; k < l->gpus; k++)
		if (!l->gpu[k].lost)
			return 0;
	return -ENODEV;
}

int lever_nvidia_fd(const struct lever_nvidia *l)
{
	return l->epoll;
}
