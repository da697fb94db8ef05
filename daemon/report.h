/* SPDX-License-Identifier: MIT */
/* report.h - what the listing requests show: see report.c. */
#ifndef RTXGD_REPORT_H
#define RTXGD_REPORT_H

#include "daemon.h"

json_t *report_gpu(struct daemon *d, const struct gpu *gpu);
json_t *report_gpu_params(const struct rtxg_gpu_params *params);
json_t *report_vgpu(struct daemon *d, const struct vgpu *vgpu);
json_t *report_task(struct daemon *d, const struct task *task);
json_t *report_stats(struct daemon *d, const struct gpu *only, bool tasks);
json_t *report_history(struct daemon *d, const struct gpu *only, uint64_t since, bool has_since);
json_t *report_limits(struct daemon *d);
json_t *report_doctor(struct daemon *d);

#endif
