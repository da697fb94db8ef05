// SPDX-License-Identifier: MIT
/*
 * warm_up.c - programs that bring their own contexts in (librtxg-cuda.so): finds them, and tells
 * them in the page of releases.h when to do it.
 */
#include <stdio.h>
#include <string.h>
#include "carry_out.h"
#include "patience.h"
#include "releases_write.h"
#include "state.h"
#include "warm_up.h"

struct maps {
	uint32_t pid;
	bool found;
};

static void read_maps(void *memory)
{
	struct maps *maps = memory;
	char path[64], line[600];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/maps", maps->pid);
	f = fopen(path, "re");
	while (f && !maps->found && fgets(line, sizeof(line), f))
		maps->found = strstr(line, "/librtxg-cuda.so") != NULL;
	if (f)
		fclose(f);
}

/*
 * Does the program bring its context in by itself when it is told to? It says so by having the
 * library that does it. One that does not answer has none.
 */
static bool has_warm_library(uint32_t pid)
{
	static const struct patience_call call = { .make = read_maps };
	struct maps maps = { .pid = pid };

	return !rtx_lib_patience_of((pid_t)pid, &call, &maps, sizeof(maps)) && maps.found;
}

void nv_look_for_warm(struct lever_nvidia *l)
{
	for (uint32_t k = 0; k < l->gpus && l->releases; k++) {
		struct nv_gpu *g = &l->gpu[k];

		for (uint32_t i = 0; i < g->high; i++) {
			struct nv_context *c = &g->context[i];
			struct rtxg_slice_event e = { .type = RTXG_SLICE_EV_WARMS, .context = i };

			if (!c->process || !rtxg_slice_asks_warm(g->slice, i) ||
			    !has_warm_library(c->process->pid))
				continue;
			c->warms = true;
			nv_decide(l, g, &e);
		}
	}
}

/* Programs are told when to bring their contexts in. */
void nv_tell_releases(struct lever_nvidia *l)
{
	uint32_t n = 0;

	if (!l->releases)
		return;
	for (uint32_t k = 0; k < l->gpus; k++) {
		struct nv_gpu *g = &l->gpu[k];

		for (uint32_t i = 0; i < g->high && n < NV_RELEASES; i++) {
			struct nv_release r = { .pci_domain = g->rm.pci_domain,
						.pci_bus = g->rm.pci_bus,
						.pci_slot = g->rm.pci_slot };

			if (!g->context[i].process || !g->context[i].warms)
				continue;
			r.pid = g->context[i].process->pid;
			r.warm_ns = g->lost || !l->enabled
					    ? RTXG_SLICE_NEVER
					    : rtxg_slice_next_warm(g->slice, g->context[i].vgpu);
			nv_releases_set(l->releases, n++, &r);
		}
	}
	for (; n < NV_RELEASES && l->releases->entry[n].pid; n++) {
		struct nv_release none = { .warm_ns = RTXG_SLICE_NEVER };

		nv_releases_set(l->releases, n, &none);
	}
	__atomic_store_n(&l->releases->heartbeat_ns, nv_now(l), __ATOMIC_RELAXED);
}
