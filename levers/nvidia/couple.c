// SPDX-License-Identifier: MIT
/*
 * couple.c - which vGPUs are on several GPUs at once: their processes may wait for each other on
 * the GPU, as those of a collective operation do. May not: decide what follows from it.
 */
#include "carry_out.h"
#include "couple.h"

void nv_couple(struct lever_nvidia *l)
{
	uint32_t gpus[LEVER_NVIDIA_VGPUS] = { 0 };

	if (l->gpus < 2)
		return;
	for (uint32_t i = 0; i < l->gpus; i++) {
		bool there[LEVER_NVIDIA_VGPUS] = { false };
		const struct nv_gpu *g = &l->gpu[i];

		for (uint32_t k = 0; k < g->high; k++)
			if (g->context[k].process && !there[g->context[k].vgpu]) {
				there[g->context[k].vgpu] = true;
				gpus[g->context[k].vgpu]++;
			}
	}
	for (uint32_t i = 0; i < l->gpus; i++) {
		struct nv_gpu *g = &l->gpu[i];

		for (uint32_t v = 0; v < LEVER_NVIDIA_VGPUS; v++) {
			struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_COUPLE,
						      .tenant = v,
						      .value = gpus[v] > 1 ? RTXG_SLICE_COUPLED
									   : 0 };

			if (!g->vgpu[v] || g->coupled[v] == (gpus[v] > 1))
				continue;
			g->coupled[v] = gpus[v] > 1;
			nv_decide(l, g, &e);
		}
	}
}
