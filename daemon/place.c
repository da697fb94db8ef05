// SPDX-License-Identifier: MIT
/*
 * place.c - where programs belong that named no vGPU, while they run. Its cgroup or a rule says it
 * when a task opens; both may change later. The kernel tells of no process that changes its cgroup,
 * so one process is looked at with every sample. May not move a task that was put somewhere.
 */
#include <string.h>

#include "access.h"
#include "backend.h"
#include "binding.h"
#include "breathe.h"
#include "memory.h"
#include "objects.h"
#include "place.h"
#include "task.h"

static bool any(const struct daemon *d)
{
	return d->bindings_count || d->matches_count;
}

static void place(struct daemon *d, struct task *task)
{
	struct request r = { .op_name = "", .given = MESSAGE_BIT(M_VGPU), .fd = -1 };
	const struct vgpu *now = task->moving_to ? task->moving_to : task->vgpu, *vgpu;
	struct rtxg_refusal refusal = { 0 };
	char why[512];

	if (!task->used || !task->found || task->placed || task->pool)
		return;
	access_match(d, task->pid, task->uid, r.vgpu);
	vgpu = objects_vgpu_find(d, r.vgpu);
	/* Where it may not be, or where there is no room, it would have been refused: it stays. */
	if (vgpu && vgpu != now && access_vgpu(vgpu, task->connection))
		task_set(task->connection, task, &r, why, sizeof(why), &refusal);
}

void place_all(struct daemon *d)
{
	memory_changed(d);
	for (uint32_t i = 0; i < d->tasks_top; i++) {
		place(d, &d->tasks[i]);
		breathe(d);
	}
	if (d->governing)
		backend_place(d, true);
}

void place_next(struct daemon *d)
{
	if (!any(d))
		return;
	for (uint32_t i = 0; i < d->tasks_top; i++) {
		struct task *task = &d->tasks[d->place_next++ % d->tasks_top];

		if (!task->used || !task->found)
			continue;
		place(d, task);
		break;
	}
	backend_place(d, false);
	if (binding_next(d))
		memory_changed(d);
}
