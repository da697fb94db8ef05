/* SPDX-License-Identifier: MIT */
/*
 * probe.h - tries each capability by its effect on contexts of the daemon's own (rtxg-nvprobe), and
 * sets what the policy may use.
 */
#ifndef RTXG_NV_PROBE_H
#define RTXG_NV_PROBE_H

struct lever_nvidia;

void nv_probe(struct lever_nvidia *lever);
/* The guardian has come or gone since: what the probes say of it follows. */
void nv_probe_guardian(struct lever_nvidia *lever);

#endif
