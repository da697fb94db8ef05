// SPDX-License-Identifier: MIT
/*
 * switchlog.c - the driver's context-switch log: each record becomes an event of the slice policy.
 */
#include "carry_out.h"
#include "contexts.h"
#include "fecs.h"
#include "state.h"
#include "switchlog.h"

void nv_switchlog_read(struct lever_nvidia *l, struct gpu *g)
{
	struct fecs_event ev[256];
	int n, i;

	if (!g->has_log)
		return;
	while ((n = fecs_read(&g->fecs, ev, 256)) > 0)
		for (i = 0; i < n; i++) {
			uint64_t at = (uint64_t)((int64_t)ev[i].gpu_ns + g->fecs.offset_ns);
			struct slot *s = nv_slot_by_record(l, g, ev[i].context, ev[i].pid);
			struct rtxg_slice_event e = { .at_ns = at };

			if (!s && ev[i].start && l->enabled && ev[i].pid != l->self) {
				nv_contexts_pump(l); /* it may be waiting there */
				s = nv_slot_by_record(l, g, ev[i].context, ev[i].pid);
				if (!s) {
					nv_adopt_unknown(l, ev[i].pid);
					s = nv_slot_by_record(l, g, ev[i].context, ev[i].pid);
				}
			}
			if (s) {
				if (ev[i].start) {
					s->since = at;
				} else if (s->since) {
					if (l->ops.stay)
						l->ops.stay(l->ops.ctx, (uint32_t)(g - l->gpu),
							    s->process->pid, s->vgpu, s->since, at);
					s->since = 0;
				}
				e.type = ev[i].start ? RTXG_SLICE_EV_START : RTXG_SLICE_EV_END;
				e.context = (uint32_t)(s - g->slot);
			} else if (ev[i].start) {
				e.type = RTXG_SLICE_EV_OTHER;
			} else {
				continue;
			}
			nv_decide(l, g, &e);
		}
	if (n < 0)
		nv_give_up(l, g, "the context-switch log does not read as it should");
	l->stats.log_lost += g->fecs.lost - g->lost_before;
	g->lost_before = g->fecs.lost;
}
