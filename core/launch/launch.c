/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * launch.c - the events of one launch: a task arrives at an engine, changes its mind, launches
 * again under the permit that it holds, completes. Decides nothing about who is next.
 */
#include "account.h"
#include "actions.h"
#include "engine.h"
#include "launch.h"

int core_arrival(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_lane *lane = &task->lanes[index];

	switch (lane->state) {
	case LANE_IDLE:
		core_lane_arrive(core, task, index, core->now);
		break;
	case LANE_EARLY:
	case LANE_HELD:
		if (!(lane->flags & RTXG_GRANT_ONESHOT))
			return core_refuse(core, -EALREADY,
					   "the task holds a permit that lets it launch", task->id,
					   index);
		/* Another thread of the same task: it queues once the one-shot permit has ended. */
		if (lane->again)
			return core_refuse(core, -EALREADY, "the task is waiting already", task->id,
					   index);
		lane->again = true;
		lane->again_ns = core->now;
		break;
	case LANE_REVOKING:
		if (lane->again)
			return core_refuse(core, -EALREADY, "the task is waiting already", task->id,
					   index);
		lane->again = true;
		lane->again_ns = core->now;
		break;
	case LANE_IDLE_HELD:
		return core_refuse(core, -EALREADY, "the task holds a permit that lets it launch",
				   task->id, index);
	default:
		return core_refuse(core, -EALREADY, "the task is waiting already", task->id, index);
	}
	return 0;
}

int core_cancel(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_lane *lane = &task->lanes[index];

	if (lane->state == LANE_WAITING) {
		core_lane_leave_queue(core, task, index);
		core_mark(core, &task->vgpu->gpu->engines[index]);
	} else if (lane->again) {
		lane->again = false;
	} else if (lane->state == LANE_IDLE) {
		return core_refuse(core, -EPERM, "the task is not waiting", task->id, index);
	} else {
		return core_refuse(core, -EALREADY, "the task has its permit already", task->id,
				   index);
	}
	return 0;
}

int core_busy(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_lane *lane = &task->lanes[index];
	struct core_account *account = &task->vgpu->accounts[index];

	if (core_lane_unseen(lane)) {
		lane->launched = true;
		core_mark(core, account->engine);
		return 0;
	}
	if (lane->state != LANE_IDLE_HELD)
		return core_refuse(core, -EPERM, "the task was not reported idle on a permit",
				   task->id, index);
	lane->state = LANE_HELD;
	lane->began_ns = core->now;
	core_pauses_note(&lane->pauses, core->now - lane->idle_since);
	core_account_stop_thinking(account);
	core_mark(core, account->engine);
	return 0;
}

int core_completion(struct rtxg_core *core, struct core_task *task, uint32_t index,
		    uint64_t used_ns, bool released)
{
	struct core_lane *lane = &task->lanes[index];
	struct core_account *account = &task->vgpu->accounts[index];

	if (lane->state == LANE_IDLE || lane->state == LANE_WAITING)
		return core_refuse(core, -EPERM, "the task has no permit", task->id, index);
	if (released && lane->state != LANE_REVOKING)
		return core_refuse(core, -EPERM, "the task's permit was not called back", task->id,
				   index);
	if (lane->state == LANE_EARLY) {
		core_lane_end_early(core, task, index);
		lane->stats.completions++;
		account->stats.completions++;
		if (lane->again) {
			lane->again = false;
			core_lane_arrive(core, task, index, lane->again_ns);
		}
		return 0;
	}
	/*
	 * It launched again unseen, under the permit that it kept: the pause ended before what it
	 * used began.
	 */
	if (lane->state == LANE_IDLE_HELD && core->now - lane->idle_since > used_ns)
		core_pauses_note(&lane->pauses, core->now - lane->idle_since - used_ns);
	core_lane_charge(core, task, index, used_ns);
	core_lane_note_length(task, index, core->now, used_ns);
	lane->stats.completions++;
	account->stats.completions++;
	if (lane->state == LANE_REVOKING || (lane->flags & RTXG_GRANT_ONESHOT)) {
		core_lane_release(core, task, index);
		if (lane->again) {
			lane->again = false;
			core_lane_arrive(core, task, index, lane->again_ns);
		}
	} else if (lane->flags & RTXG_GRANT_REPORT) {
		lane->state = LANE_IDLE_HELD;
		lane->idle_since = core->now;
		if (!account->engine->waiting)
			/* the pause is at no one's cost */
			lane->contended_ns = RTXG_TIME_NEVER;
	}
	core_mark(core, account->engine);
	return 0;
}
