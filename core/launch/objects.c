/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * objects.c - GPUs, vGPUs and tasks: added, changed, moved, removed. Decides nothing about who
 * runs.
 */
#include "account.h"
#include "actions.h"
#include "engine.h"
#include "objects.h"
#include "params.h"
#include "policy.h"
#include "pool.h"

static struct core_gpu *find_gpu(struct rtxg_core *core, uint32_t id)
{
	return id < core->limits.gpus && core->gpus[id].used ? &core->gpus[id] : NULL;
}

static struct core_vgpu *find_vgpu(struct rtxg_core *core, uint32_t id)
{
	return id < core->limits.vgpus && core->vgpus[id].used ? &core->vgpus[id] : NULL;
}

struct core_task *core_find_task(struct rtxg_core *core, uint32_t id)
{
	return id < core->limits.tasks && core->tasks[id].open ? &core->tasks[id] : NULL;
}

int core_gpu_add(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct rtxg_gpu_params params;
	struct core_gpu *gpu;
	int ret;

	if (event->gpu >= core->limits.gpus)
		return core_refuse(core, -EINVAL, "GPU number is over the limit", event->gpu,
				   core->limits.gpus - 1);
	gpu = &core->gpus[event->gpu];
	if (gpu->used)
		return core_refuse(core, -EEXIST, "that GPU exists already", event->gpu, 0);
	ret = core_check_gpu_params(core, &event->gpu_params, &params);
	if (ret)
		return ret;
	memset(gpu, 0, sizeof(*gpu));
	gpu->used = true;
	gpu->id = event->gpu;
	gpu->params = params;
	gpu->epoch_ns = core->now;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		core_engine_init(&gpu->engines[i], gpu, i);
	return 0;
}

int core_gpu_set(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct core_gpu *gpu = find_gpu(core, event->gpu);
	struct rtxg_gpu_params params;
	struct core_vgpu *vgpu;
	int ret;

	if (!gpu)
		return core_refuse(core, -ENOENT, "no such GPU", event->gpu, 0);
	ret = core_check_gpu_params(core, &event->gpu_params, &params);
	if (ret)
		return ret;
	if (gpu->reserved_ppm + params.switch_ppm > RTXG_PPM)
		return core_refuse(core, -ENOSPC,
				   "reservations leave no room for this cost of switching (ppm)",
				   params.switch_ppm, RTXG_PPM - gpu->reserved_ppm);

	/* What was used so far is charged under the rules that it was used under. */
	for (vgpu = gpu->vgpus; vgpu; vgpu = vgpu->next)
		for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
			struct core_account *account = &vgpu->accounts[i];

			if (account->engine->awaited == account)
				core_engine_end_wait(account->engine, core->now);
			core_account_unplace(account);
			core_account_stop_thinking(account);
			core_account_settle(account, core->now);
		}
	gpu->params = params;
	gpu->epoch_ns = core->now;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct core_engine *engine = &gpu->engines[i];
		bool other = core_engine_set_policy(engine);

		for (vgpu = gpu->vgpus; vgpu; vgpu = vgpu->next) {
			struct core_account *account = &vgpu->accounts[i];

			core_account_reset(account, other, core->now);
			/* It may keep none waiting by the new rules: the engine looks again. */
			if (other)
				heap_remove(&account->patience);
			/*
			 * Several may hold if the policy was shared: the engine waits until they
			 * are all gone.
			 */
			if (account->holder && !engine->policy->shared)
				engine->holder = account;
			core_account_place(core, account);
		}
		core_mark(core, engine);
	}
	return 0;
}

int core_gpu_remove(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct core_gpu *gpu = find_gpu(core, event->gpu);

	if (!gpu)
		return core_refuse(core, -ENOENT, "no such GPU", event->gpu, 0);
	if (gpu->vgpu_count)
		return core_refuse(core, -EBUSY, "the GPU still has vGPUs", gpu->vgpu_count, 0);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		if (gpu->engines[i].dirty)
			return core_refuse(core, -EBUSY, "the GPU has actions to be fetched first",
					   i, 0);
	for (uint32_t p = 0; p < core->limits.pools; p++)
		if (core->pools[p].used && (core->pools[p].gpu_mask >> gpu->id & 1))
			return core_refuse(core, -EBUSY, "the GPU is in a pool", p, 0);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		heap_remove(&gpu->engines[i].timer);
	gpu->used = false;
	return 0;
}

int core_vgpu_add(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct rtxg_vgpu_params params;
	struct core_vgpu *vgpu;
	struct core_gpu *gpu;
	int ret;

	if (event->vgpu >= core->limits.vgpus)
		return core_refuse(core, -EINVAL, "vGPU number is over the limit", event->vgpu,
				   core->limits.vgpus - 1);
	vgpu = &core->vgpus[event->vgpu];
	if (vgpu->used)
		return core_refuse(core, -EEXIST, "that vGPU exists already", event->vgpu, 0);
	gpu = find_gpu(core, event->gpu);
	if (!gpu)
		return core_refuse(core, -ENOENT, "no such GPU", event->gpu, 0);
	ret = core_check_vgpu_params(core, gpu, NULL, &event->vgpu_params, &params);
	if (ret)
		return ret;

	memset(vgpu, 0, sizeof(*vgpu));
	vgpu->used = true;
	vgpu->id = event->vgpu;
	vgpu->gpu = gpu;
	vgpu->params = params;
	vgpu->prev = gpu->vgpus_tail;
	if (gpu->vgpus_tail)
		gpu->vgpus_tail->next = vgpu;
	else
		gpu->vgpus = vgpu;
	gpu->vgpus_tail = vgpu;
	gpu->vgpu_count++;
	gpu->reserved_ppm += params.min_ppm;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		core_account_init(&vgpu->accounts[i], vgpu, &gpu->engines[i], core->now);
	return 0;
}

int core_vgpu_set(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct core_vgpu *vgpu = find_vgpu(core, event->vgpu);
	struct rtxg_vgpu_params params;
	bool anew;
	int ret;

	if (!vgpu)
		return core_refuse(core, -ENOENT, "no such vGPU", event->vgpu, 0);
	ret = core_check_vgpu_params(core, vgpu->gpu, vgpu, &event->vgpu_params, &params);
	if (ret)
		return ret;
	/*
	 * A change of weight or priority leaves the server's books alone; one of its bandwidth has
	 * them go on under the new one.
	 */
	anew = params.min_ppm != vgpu->params.min_ppm || params.max_ppm != vgpu->params.max_ppm ||
	       params.period_ns != vgpu->params.period_ns;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		core_account_settle(&vgpu->accounts[i], core->now);
	vgpu->gpu->reserved_ppm += params.min_ppm;
	vgpu->gpu->reserved_ppm -= vgpu->params.min_ppm;
	vgpu->params = params;
	for (uint32_t id = 0; id < core->limits.tasks; id++) {
		struct core_task *task = &core->tasks[id];

		if (!task->open || task->vgpu != vgpu)
			continue;
		for (uint32_t i = 0; i < RTXG_ENGINES; i++)
			core_lane_requeue(core, task, i);
	}
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct core_account *account = &vgpu->accounts[i];

		if (anew)
			core_account_changed(account, core->now);
		core_account_place(core, account);
		core_mark(core, account->engine);
	}
	return 0;
}

int core_vgpu_remove(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct core_vgpu *vgpu = find_vgpu(core, event->vgpu);
	struct core_gpu *gpu;

	if (!vgpu)
		return core_refuse(core, -ENOENT, "no such vGPU", event->vgpu, 0);
	if (vgpu->tasks)
		return core_refuse(core, -EBUSY, "the vGPU still has tasks", vgpu->tasks, 0);
	gpu = vgpu->gpu;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		if (core_account_forget(&vgpu->accounts[i]))
			core_mark(core, &gpu->engines[i]);
	}
	if (vgpu->prev)
		vgpu->prev->next = vgpu->next;
	else
		gpu->vgpus = vgpu->next;
	if (vgpu->next)
		vgpu->next->prev = vgpu->prev;
	else
		gpu->vgpus_tail = vgpu->prev;
	gpu->vgpu_count--;
	gpu->reserved_ppm -= vgpu->params.min_ppm;
	vgpu->used = false;
	return 0;
}

int core_task_open(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct rtxg_task_params params;
	struct core_task *task;
	struct core_vgpu *vgpu;
	int ret;

	if (event->task >= core->limits.tasks)
		return core_refuse(core, -EINVAL, "task number is over the limit", event->task,
				   core->limits.tasks - 1);
	task = &core->tasks[event->task];
	if (task->open)
		return core_refuse(core, -EEXIST, "that task exists already", event->task, 0);
	vgpu = find_vgpu(core, event->vgpu);
	if (!vgpu)
		return core_refuse(core, -ENOENT, "no such vGPU", event->vgpu, 0);
	ret = core_check_task_params(core, &event->task_params, &params);
	if (ret)
		return ret;
	memset(task, 0, sizeof(*task));
	task->open = true;
	task->id = event->task;
	task->vgpu = vgpu;
	task->params = params;
	task->pool = RTXG_NONE;
	if (!vgpu->tasks++)
		vgpu->gpu->users++;
	return 0;
}

int core_task_set(struct rtxg_core *core, struct core_task *task, const struct rtxg_event *event)
{
	struct rtxg_task_params params;
	int ret = core_check_task_params(core, &event->task_params, &params);

	if (ret)
		return ret;
	task->params = params;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		core_lane_requeue(core, task, i);
	return 0;
}

/* Takes the task out of its vGPU's counts. */
static void task_leave(struct rtxg_core *core, struct core_task *task)
{
	struct core_vgpu *vgpu = task->vgpu;

	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		core_lane_forget(core, task, i);
	if (--vgpu->tasks)
		return;
	vgpu->gpu->users--;
}

int core_task_move(struct rtxg_core *core, struct core_task *task, const struct rtxg_event *event)
{
	struct core_vgpu *vgpu = find_vgpu(core, event->vgpu);

	if (!vgpu)
		return core_refuse(core, -ENOENT, "no such vGPU", event->vgpu, 0);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		if (task->lanes[i].state != LANE_IDLE)
			return core_refuse(core, -EBUSY,
					   "the task is using its GPU or waiting for it", i, 0);
	if (vgpu == task->vgpu)
		return 0;
	task_leave(core, task);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		core_mark(core, &task->vgpu->gpu->engines[i]);
	task->vgpu = vgpu;
	if (!vgpu->tasks++)
		vgpu->gpu->users++;
	return 0;
}

void core_task_close(struct rtxg_core *core, struct core_task *task)
{
	core_pool_leave(core, task);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct core_lane *lane = &task->lanes[i];

		lane->again = false;
		if (lane->state == LANE_WAITING) {
			core_lane_leave_queue(core, task, i);
		} else if (lane->state == LANE_EARLY) {
			core_lane_end_early(core, task, i);
		} else if (lane->state != LANE_IDLE) {
			/*
			 * No report will say what it used: it is charged for all the time that it
			 * kept others waiting.
			 */
			core_lane_charge(core, task, i, 0);
			core_lane_release(core, task, i);
		}
		core_mark(core, &task->vgpu->gpu->engines[i]);
	}
	task_leave(core, task);
	task->open = false;
}
