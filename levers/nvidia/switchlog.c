// SPDX-License-Identifier: MIT
/*
 * switchlog.c - the driver's context-switch log: each record becomes an event of the slice policy.
 */
#include "carry_out.h"
#include "contexts.h"
#include "fecs.h"
#include "pump.h"
#include "state.h"
#include "switchlog.h"
#include "unknown.h"

#define JUMP_NS	   50000000ull	/* the clocks drift by much less between two comparisons */
#define COMPARE_NS 100000000ull /* between comparisons because of a record */

/*
 * On our clock. A record that is yet to come, or that was there long before the log was read last,
 * says that the GPU's clock has jumped against ours, as it does when the machine has slept: they
 * are compared again, and not for each record if that does not help.
 */
static uint64_t when(struct lever_nvidia *l, struct nv_gpu *g, uint64_t gpu_ns)
{
	uint64_t at = (uint64_t)((int64_t)gpu_ns + g->fecs.offset_ns), now = nv_now(l);
	int64_t offset = g->fecs.offset_ns;

	if ((at <= now + JUMP_NS && at + JUMP_NS >= g->read_before) ||
	    (g->compared && now < g->compared + COMPARE_NS))
		return at;
	g->compared = now;
	if (nv_fecs_calibrate(&g->fecs))
		return at;
	nv_log(l, LEVER_NVIDIA_INFO, "the GPU's clock has jumped by %lld ms",
	       (long long)((offset - g->fecs.offset_ns) / 1000000));
	return (uint64_t)((int64_t)gpu_ns + g->fecs.offset_ns);
}

void nv_switchlog_read(struct lever_nvidia *l, struct nv_gpu *g)
{
	uint64_t began = nv_now(l);
	struct nv_fecs_event ev[256];
	int n, i;

	if (!g->has_log)
		return;
	while ((n = nv_fecs_read(&g->fecs, ev, 256)) > 0)
		for (i = 0; i < n; i++) {
			uint64_t at = when(l, g, ev[i].gpu_ns);
			struct nv_context *c = nv_context_by_record(l, g, ev[i].context, ev[i].pid);
			struct rtxg_slice_event e = { .at_ns = at };

			if (!c && ev[i].start && l->enabled && ev[i].pid != l->self) {
				nv_pump(l); /* it may be waiting there */
				c = nv_context_by_record(l, g, ev[i].context, ev[i].pid);
				if (!c) {
					nv_adopt_unknown(l, g, ev[i].pid);
					c = nv_context_by_record(l, g, ev[i].context, ev[i].pid);
				}
			}
			if (c) {
				c->worked = began;
				if (ev[i].start) {
					c->since = at;
				} else if (c->since) {
					if (l->ops.stay)
						l->ops.stay(l->ops.ctx, (uint32_t)(g - l->gpu),
							    c->process->pid, c->vgpu, c->since, at);
					c->since = 0;
				}
				e.type = ev[i].start ? RTXG_SLICE_EV_START : RTXG_SLICE_EV_END;
				e.context = (uint32_t)(c - g->context);
			} else if (ev[i].start) {
				e.type = RTXG_SLICE_EV_OTHER;
			} else {
				continue;
			}
			nv_decide(l, g, &e);
		}
	if (n < 0)
		nv_give_up(l, g, "the context-switch log does not read as it should");
	g->read_before = began;
	l->stats.log_lost += g->fecs.lost - g->lost_before;
	g->lost_before = g->fecs.lost;
}
