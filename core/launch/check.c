/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * check.c - looks at a core and changes nothing: what hosts show of it, and whether its structures
 * hold together.
 */
#include "account.h"
#include "engine.h"
#include "policy.h"

void rtxg_stats_add(struct rtxg_stats *sum, const struct rtxg_stats *stats)
{
	sum->busy_ns += stats->busy_ns;
	sum->used_ns += stats->used_ns;
	sum->wait_ns += stats->wait_ns;
	sum->grants += stats->grants;
	sum->completions += stats->completions;
	sum->overruns += stats->overruns;
	sum->expelled += stats->expelled;
	sum->throttled += stats->throttled;
}

uint32_t rtxg_core_holder(const struct rtxg_core *core, uint32_t gpu, uint32_t engine)
{
	const struct core_engine *e;

	if (gpu >= core->limits.gpus || !core->gpus[gpu].used || engine >= RTXG_ENGINES)
		return RTXG_NONE;
	e = &core->gpus[gpu].engines[engine];
	return e->holder && e->holder->holder ? e->holder->holder_task->id : RTXG_NONE;
}

uint32_t rtxg_core_unseen_launch(const struct rtxg_core *core, uint32_t gpu, uint32_t engine)
{
	const struct core_engine *e;

	if (gpu >= core->limits.gpus || !core->gpus[gpu].used || engine >= RTXG_ENGINES ||
	    !core->gpus[gpu].params.early_ns)
		return RTXG_NONE;
	e = &core->gpus[gpu].engines[engine];
	return e->holder && e->holder->holder && core_lane_unseen(e->holder->holder)
		       ? e->holder->holder_task->id
		       : RTXG_NONE;
}

uint32_t rtxg_core_idle_holder(const struct rtxg_core *core, uint32_t gpu, uint32_t engine)
{
	const struct core_engine *e;

	if (gpu >= core->limits.gpus || !core->gpus[gpu].used || engine >= RTXG_ENGINES)
		return RTXG_NONE;
	e = &core->gpus[gpu].engines[engine];
	if (!e->holder || !e->holder->holder || e->holder->holder->state != LANE_IDLE_HELD)
		return RTXG_NONE;
	return e->holder->holder_task->id;
}

int rtxg_core_vgpu_view(const struct rtxg_core *core, uint32_t vgpu, uint32_t engine,
			uint64_t now_ns, struct rtxg_account_view *view)
{
	struct core_account shown;
	struct core_account *account = &shown;
	const struct core_policy *policy;
	const struct core_vgpu *v;

	if (vgpu >= core->limits.vgpus || !core->vgpus[vgpu].used)
		return -ENOENT;
	if (engine >= RTXG_ENGINES)
		return -EINVAL;
	v = &core->vgpus[vgpu];
	/*
	 * Books are brought up to date when a host looks; for a core that may not change, in a
	 * copy.
	 */
	shown = v->accounts[engine];
	policy = shown.engine->policy;
	now_ns = max_u64(now_ns, core->now);
	if (policy->settle)
		policy->settle(account, now_ns);
	*view = (struct rtxg_account_view){
		.stats = account->stats,
		.used_ppm = core_account_used_ppm(account, now_ns),
		.waiting = account->waiters.count,
		.holder = account->holder_task ? account->holder_task->id : RTXG_NONE,
		.tasks = v->tasks,
	};
	if (policy->view)
		policy->view(account, view);
	return 0;
}

int rtxg_core_task_stats(const struct rtxg_core *core, uint32_t task, uint32_t engine,
			 struct rtxg_stats *stats)
{
	if (task >= core->limits.tasks || !core->tasks[task].open)
		return -ENOENT;
	if (engine >= RTXG_ENGINES)
		return -EINVAL;
	*stats = core->tasks[task].lanes[engine].stats;
	return 0;
}

static const char *check_lane(const struct core_task *task, uint32_t index)
{
	const struct core_lane *lane = &task->lanes[index];
	const struct core_account *account = &task->vgpu->accounts[index];

	if ((lane->state == LANE_WAITING) != (lane->node.heap == &account->waiters))
		return "a waiting lane is in its account's heap, and only a waiting one";
	if (lane->state == LANE_HELD || lane->state == LANE_IDLE_HELD ||
	    lane->state == LANE_REVOKING) {
		if (account->holder != lane || account->holder_task != task)
			return "a lane with a permit is its account's holder";
	} else if (account->holder == lane) {
		return "an account's holder has a permit";
	}
	if ((lane->state == LANE_EARLY) != (account->engine->early == task))
		return "an engine's early task has its permit already, and only that one";
	return NULL;
}

const char *rtxg_core_check(const struct rtxg_core *core)
{
	for (uint32_t id = 0; id < core->limits.tasks; id++) {
		const struct core_task *task = &core->tasks[id];

		for (uint32_t i = 0; task->open && i < RTXG_ENGINES; i++) {
			const char *wrong = check_lane(task, i);

			if (wrong)
				return wrong;
		}
	}
	for (uint32_t id = 0; id < core->limits.gpus; id++) {
		const struct core_gpu *gpu = &core->gpus[id];
		uint64_t reserved = 0;
		uint32_t count = 0, users = 0;

		if (!gpu->used)
			continue;
		for (const struct core_vgpu *vgpu = gpu->vgpus; vgpu; vgpu = vgpu->next) {
			reserved += vgpu->params.min_ppm;
			count++;
			users += vgpu->tasks > 0;
		}
		if (reserved != gpu->reserved_ppm || count != gpu->vgpu_count ||
		    users != gpu->users)
			return "a GPU's sums are those of its vGPUs";
		if (reserved + gpu->params.switch_ppm > RTXG_PPM)
			return "no GPU is promised more than once";
		for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
			const struct core_engine *engine = &gpu->engines[i];
			uint32_t waiting = 0, permits = 0;

			for (const struct core_vgpu *vgpu = gpu->vgpus; vgpu; vgpu = vgpu->next) {
				const struct core_account *account = &vgpu->accounts[i];

				waiting += account->waiters.count;
				permits += account->holder != NULL;
				if (!engine->policy->shared &&
				    !account->ready.heap != !account->waiters.count &&
				    !(account->wake.heap && account->waiters.count))
					return "an account is in a heap of its engine exactly "
					       "while one of its lanes waits";
			}
			if (waiting != engine->waiting)
				return "an engine's count of waiters is the sum over its accounts";
			if (permits != engine->permits)
				return "an engine's count of permits is the sum over its accounts";
			if (engine->awaited &&
			    (!engine->awaited->thinking || engine->awaited->engine != engine))
				return "an engine is kept free for an account that thinks";
			if (engine->holder && !engine->holder->holder)
				return "an engine's holder has a permit";
		}
	}
	return NULL;
}
