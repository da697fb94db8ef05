/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* objects.h - the events that add, change, move and remove GPUs, vGPUs and tasks. */
#ifndef RTXG_CORE_OBJECTS_H
#define RTXG_CORE_OBJECTS_H

#include "state.h"

int core_gpu_add(struct rtxg_core *core, const struct rtxg_event *event);
int core_gpu_set(struct rtxg_core *core, const struct rtxg_event *event);
int core_gpu_remove(struct rtxg_core *core, const struct rtxg_event *event);

int core_vgpu_add(struct rtxg_core *core, const struct rtxg_event *event);
int core_vgpu_set(struct rtxg_core *core, const struct rtxg_event *event);
int core_vgpu_remove(struct rtxg_core *core, const struct rtxg_event *event);

struct core_task *core_find_task(struct rtxg_core *core, uint32_t id);
int core_task_open(struct rtxg_core *core, const struct rtxg_event *event);
int core_task_set(struct rtxg_core *core, struct core_task *task, const struct rtxg_event *event);
int core_task_move(struct rtxg_core *core, struct core_task *task, const struct rtxg_event *event);
void core_task_close(struct rtxg_core *core, struct core_task *task);

#endif
