// SPDX-License-Identifier: MIT
/*
 * pump.c - takes in what the discovery program tells, for a bounded time.
 *
 * May not: look into a record.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include "../../bpf/discovery.h"
#include "contexts.h"
#include "pump.h"
#include "rtxg_clock.h"
#include "state.h"

#define ALL_NS	      2000000000ull
#define PUMP_PAUSE_NS 1000000ull  /* between two reads of records that do not end */
#define BURST_NS      20000000ull /* of reading without such pauses, which comes back */
#define BURST_PART    4u	  /* in so many times as long */

uint64_t nv_pump_after(struct lever_nvidia *l, uint64_t began, uint64_t ended)
{
	uint64_t spent = l->pump_spent, back = (began - l->pump_ended) / BURST_PART;

	spent = (spent > back ? spent - back : 0) + ended - began;
	l->pump_ended = ended;
	l->pump_spent = spent < BURST_NS ? spent : BURST_NS;
	return spent < BURST_NS ? ended : ended + PUMP_PAUSE_NS;
}

void nv_pump(struct lever_nvidia *l)
{
	struct epoll_event e = { .data.u32 = NV_SOURCE_DISCOVERY };
	bool silent = l->pump_again != UINT64_MAX, more;
	uint64_t began = nv_now(l), again;

	if (!l->discovery)
		return;
	l->pump_again = UINT64_MAX;
	more = discovery_read(l->discovery, rtxg_now_ns() + NV_PIECE_NS, nv_contexts_feed, l);
	again = nv_pump_after(l, began, nv_now(l));
	l->pump_again = more ? again : UINT64_MAX;
	if (silent == (l->pump_again != UINT64_MAX))
		return;
	e.events = silent ? EPOLLIN : 0;
	epoll_ctl(l->epoll, EPOLL_CTL_MOD, discovery_fd(l->discovery), &e);
}

void nv_pump_all(struct lever_nvidia *l)
{
	uint64_t end = rtxg_now_ns() + ALL_NS;

	do
		nv_pump(l);
	while (l->pump_again != UINT64_MAX && rtxg_now_ns() < end);
}
