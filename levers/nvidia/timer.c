// SPDX-License-Identifier: MIT
/*
 * timer.c - see timer.h.
 */
#include <sys/timerfd.h>
#include "demand.h"
#include "state.h"
#include "timer.h"

void nv_arm(struct lever_nvidia *l)
{
	struct itimerspec t = { 0 };
	uint64_t at = nv_demand_next(l);

	l->lookout.wanted = nv_demand_next_glance(l) != UINT64_MAX;
	at = l->next_watch < at ? l->next_watch : at;
	at = l->pump_again < at ? l->pump_again : at;
	at = l->save_again < at ? l->save_again : at;
	for (uint32_t i = 0; i < l->gpus; i++)
		if (!l->gpu[i].lost && l->gpu[i].timer < at)
			at = l->gpu[i].timer;
	if (at == l->armed)
		return;
	l->armed = at;
	l->armed_at = nv_now(l);
	l->stats.arms++;
	t.it_value.tv_sec = (time_t)(at / 1000000000u);
	t.it_value.tv_nsec = (long)(at % 1000000000u);
	if (!t.it_value.tv_sec && !t.it_value.tv_nsec)
		t.it_value.tv_nsec = 1;
	timerfd_settime(l->timerfd, TFD_TIMER_ABSTIME, &t, NULL);
}
