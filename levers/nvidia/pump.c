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
#define PUMP_PAUSE_NS 1000000ull /* between two reads of records that do not end */

/*
 * A program may cause records without end. While more wait than are read in one go, the host has
 * most of the time for all else, and for others than the lever.
 */
void nv_pump(struct lever_nvidia *l)
{
	struct epoll_event e = { .data.u32 = NV_SOURCE_DISCOVERY };
	bool silent = l->pump_again != UINT64_MAX;

	if (!l->discovery)
		return;
	l->pump_again = UINT64_MAX;
	if (discovery_read(l->discovery, rtxg_now_ns() + NV_PIECE_NS, nv_contexts_feed, l))
		l->pump_again = nv_now(l) + PUMP_PAUSE_NS;
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
