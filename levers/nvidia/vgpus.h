/* SPDX-License-Identifier: MIT */
/*
 * vgpus.h - which process is in which vGPU, inside the lever.
 */
#ifndef RTXG_NV_VGPUS_H
#define RTXG_NV_VGPUS_H

#include "state.h"

/*
 * The vGPU that a process belongs to, by the discovery program, by the file of assignments, or as
 * the host says.
 */
uint32_t nv_belongs(struct lever_nvidia *l, struct nv_process *p);
/* The vGPU that the children of a process inherit: not one that only the host has placed it in. */
uint32_t nv_inherits(const struct nv_process *p);
/* The vGPU of that number on this GPU; the default one if it does not exist there. */
uint32_t nv_vgpu_of(const struct nv_gpu *g, uint32_t tag);
/* Writes the file of assignments if it is out of date. The host's hand-overs pass meanwhile. */
void nv_save_assigned(struct lever_nvidia *l);
/* The same, for 0.3 ms; the rest has its time in l->save_again. */
void nv_save_some(struct lever_nvidia *l);
/* Reads the file that an earlier daemon wrote. */
void nv_read_assigned(struct lever_nvidia *l);

#endif
