/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * core.c - takes events, checks them, keeps the objects. Decides nothing about who runs: that is
 * engine.c and the policies. Like all of the core it may not call the system, allocate, read a
 * clock, or use floating point.
 */
#include "internal.h"

#define ALIGN16(n) (((n) + 15u) & ~(size_t)15u)

static bool limits_ok(const struct rtxg_limits *limits)
{
	return limits && limits->gpus >= 1 && limits->gpus <= 64 && limits->vgpus >= 1 &&
	       limits->vgpus <= 4096 && limits->tasks >= 1 && limits->tasks <= 65536 &&
	       limits->pools <= 64;
}

size_t rtxg_core_size(const struct rtxg_limits *limits)
{
	if (!limits_ok(limits))
		return 0;
	return ALIGN16(sizeof(struct rtxg_core)) + ALIGN16(limits->gpus * sizeof(struct core_gpu)) +
	       ALIGN16(limits->vgpus * sizeof(struct core_vgpu)) +
	       ALIGN16(limits->tasks * sizeof(struct core_task)) +
	       ALIGN16(limits->pools * sizeof(struct core_pool));
}

struct rtxg_core *rtxg_core_init(void *mem, size_t size, const struct rtxg_limits *limits,
				 uint64_t now_ns)
{
	struct rtxg_core *core = mem;
	char *at = mem;
	size_t need = rtxg_core_size(limits);

	if (!mem || ((uintptr_t)mem & 15u) || !need || size < need)
		return NULL;
	memset(mem, 0, need);
	core->limits = *limits;
	core->now = now_ns;
	core->armed = NEVER;
	at += ALIGN16(sizeof(struct rtxg_core));
	core->gpus = (struct core_gpu *)at;
	at += ALIGN16(limits->gpus * sizeof(struct core_gpu));
	core->vgpus = (struct core_vgpu *)at;
	at += ALIGN16(limits->vgpus * sizeof(struct core_vgpu));
	core->tasks = (struct core_task *)at;
	at += ALIGN16(limits->tasks * sizeof(struct core_task));
	core->pools = (struct core_pool *)at;
	return core;
}

struct rtxg_refusal rtxg_core_refusal(const struct rtxg_core *core)
{
	return core->refusal;
}

/* Refuses the event and remembers why. */
int core_refuse(struct rtxg_core *core, int error, const char *what, uint64_t value, uint64_t limit)
{
	core->refusal = (struct rtxg_refusal){ .what = what, .value = value, .limit = limit };
	return error;
}

struct rtxg_action *core_emit(struct rtxg_core *core, uint32_t type)
{
	/* Callers make sure that there is room: see core_flush. */
	struct rtxg_action *action = &core->actions[core->action_count++];

	memset(action, 0, sizeof(*action));
	action->type = type;
	action->task = action->engine = action->gpu = action->pool = RTXG_NONE;
	return action;
}

void core_mark(struct rtxg_core *core, struct core_engine *engine)
{
	if (engine->dirty)
		return;
	engine->dirty = true;
	engine->next_dirty = NULL;
	if (core->dirty_last)
		core->dirty_last->next_dirty = engine;
	else
		core->dirty_first = engine;
	core->dirty_last = engine;
}

void core_arm(struct rtxg_core *core, struct heap_node *timer, uint32_t kind, uint64_t at)
{
	if (heap_holds(timer) && timer->key == at)
		return;
	heap_remove(timer);
	timer->kind = kind;
	if (at != NEVER)
		heap_insert(&core->timers, timer, at, 0);
}

/* Lets every dirty engine decide, as long as there is room for what it may emit. */
static void core_flush(struct rtxg_core *core)
{
	while (core->dirty_first && core->action_count + RTXG_ACTIONS_MIN / 2 <= core->action_cap) {
		struct core_engine *engine = core->dirty_first;

		core->dirty_first = engine->next_dirty;
		if (!core->dirty_first)
			core->dirty_last = NULL;
		engine->dirty = false;
		engine->next_dirty = NULL;
		engine_schedule(core, engine);
	}
	if (core->action_count < core->action_cap) {
		struct heap_node *first = heap_first(&core->timers);
		uint64_t at = first ? first->key : NEVER;

		if (at != core->armed) {
			core->armed = at;
			core_emit(core, RTXG_ACT_ARM_TIMER)->at_ns = at;
		}
	}
}

static struct core_gpu *find_gpu(struct rtxg_core *core, uint32_t id)
{
	return id < core->limits.gpus && core->gpus[id].used ? &core->gpus[id] : NULL;
}

static struct core_vgpu *find_vgpu(struct rtxg_core *core, uint32_t id)
{
	return id < core->limits.vgpus && core->vgpus[id].used ? &core->vgpus[id] : NULL;
}

static struct core_task *find_task(struct rtxg_core *core, uint32_t id)
{
	return id < core->limits.tasks && core->tasks[id].open ? &core->tasks[id] : NULL;
}

/* --- GPUs ------------------------------------------------------------------------------------- */

static int check_gpu_params(struct rtxg_core *core, const struct rtxg_gpu_params *in,
			    struct rtxg_gpu_params *out)
{
	*out = *in;
	if (in->policy >= RTXG_GPU_POLICIES)
		return core_refuse(core, -EINVAL, "unknown GPU policy", in->policy,
				   RTXG_GPU_POLICIES - 1);
	if (in->overrun > RTXG_OVERRUN_CHARGE)
		return core_refuse(core, -EINVAL, "unknown overrun rule", in->overrun,
				   RTXG_OVERRUN_CHARGE);
	if (in->reserved)
		return core_refuse(core, -EINVAL,
				   "a reserved field of the GPU's parameters is not 0",
				   in->reserved, 0);
	if (in->switch_ppm >= RTXG_PPM)
		return core_refuse(core, -EINVAL,
				   "switching cost (ppm) must be below the whole GPU",
				   in->switch_ppm, RTXG_PPM - 1);
	if (!out->period_ns)
		out->period_ns = RTXG_PERIOD_DEFAULT_NS;
	if (out->period_ns < RTXG_PERIOD_MIN_NS)
		return core_refuse(core, -EINVAL, "period (ns) is shorter than the shortest",
				   in->period_ns, RTXG_PERIOD_MIN_NS);
	if (out->period_ns > RTXG_PERIOD_MAX_NS)
		return core_refuse(core, -EINVAL, "period (ns) is longer than the longest",
				   in->period_ns, RTXG_PERIOD_MAX_NS);
	if (!out->window_ns)
		out->window_ns = 1000000000ull;
	if (out->window_ns < RTXG_PERIOD_MIN_NS)
		return core_refuse(core, -EINVAL, "window (ns) is shorter than the shortest",
				   in->window_ns, RTXG_PERIOD_MIN_NS);
	if (out->window_ns > 100 * RTXG_PERIOD_MAX_NS)
		return core_refuse(core, -EINVAL, "window (ns) is longer than the longest",
				   in->window_ns, 100 * RTXG_PERIOD_MAX_NS);
	if (!out->band_wait_ns)
		out->band_wait_ns = 500000;
	if (!out->think_ns)
		out->think_ns = 2000000;
	else if (out->think_ns == NEVER)
		out->think_ns = 0;
	if (!out->revoke_timeout_ns)
		out->revoke_timeout_ns = 2000000000ull;
	return 0;
}

static int gpu_add(struct rtxg_core *core, const struct rtxg_event *event)
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
	ret = check_gpu_params(core, &event->gpu_params, &params);
	if (ret)
		return ret;
	memset(gpu, 0, sizeof(*gpu));
	gpu->used = true;
	gpu->id = event->gpu;
	gpu->params = params;
	gpu->epoch_ns = core->now;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		engine_init(&gpu->engines[i], gpu, i);
	return 0;
}

static int gpu_set(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct core_gpu *gpu = find_gpu(core, event->gpu);
	struct rtxg_gpu_params params;
	struct core_vgpu *vgpu;
	int ret;

	if (!gpu)
		return core_refuse(core, -ENOENT, "no such GPU", event->gpu, 0);
	ret = check_gpu_params(core, &event->gpu_params, &params);
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

			account_unplace(account);
			account_stop_thinking(account);
			queue_credit(account, core->now);
		}
	gpu->params = params;
	gpu->epoch_ns = core->now;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct core_engine *engine = &gpu->engines[i];

		engine->holder = engine->arrived = engine->completed = engine->last =
			engine->band_next = NULL;
		engine->band_until = NEVER;
		for (vgpu = gpu->vgpus; vgpu; vgpu = vgpu->next) {
			struct core_account *account = &vgpu->accounts[i];

			account_reset(account, core->now);
			/*
			 * Several may hold if the policy was null: engine_schedule waits until they
			 * are all gone.
			 */
			if (account->holder && params.policy != RTXG_GPU_NULL)
				engine->holder = account;
			account_place(core, account);
		}
		core_mark(core, engine);
	}
	return 0;
}

static int gpu_remove(struct rtxg_core *core, const struct rtxg_event *event)
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

/* --- vGPUs ------------------------------------------------------------------------------------ */

static int check_vgpu_params(struct rtxg_core *core, const struct core_gpu *gpu,
			     const struct core_vgpu *old, const struct rtxg_vgpu_params *in,
			     struct rtxg_vgpu_params *out)
{
	uint64_t others = gpu->reserved_ppm - (old ? old->params.min_ppm : 0);
	uint64_t room = RTXG_PPM - gpu->params.switch_ppm;

	*out = *in;
	if (in->min_ppm > RTXG_PPM)
		return core_refuse(core, -EINVAL, "reservation (ppm) is more than the whole GPU",
				   in->min_ppm, RTXG_PPM);
	if (!out->max_ppm)
		out->max_ppm = RTXG_PPM;
	if (out->max_ppm > RTXG_PPM)
		return core_refuse(core, -EINVAL, "cap (ppm) is more than the whole GPU",
				   in->max_ppm, RTXG_PPM);
	if (out->max_ppm < out->min_ppm)
		return core_refuse(core, -EINVAL, "cap (ppm) is below the reservation", in->max_ppm,
				   in->min_ppm);
	if (!out->weight)
		out->weight = RTXG_WEIGHT_DEFAULT;
	if (out->weight > RTXG_WEIGHT_MAX)
		return core_refuse(core, -EINVAL, "weight is over the largest", in->weight,
				   RTXG_WEIGHT_MAX);
	if (!out->priority)
		out->priority = RTXG_PRIORITY_MIN;
	if (out->priority > RTXG_PRIORITY_MAX)
		return core_refuse(core, -EINVAL, "priority is over the highest", in->priority,
				   RTXG_PRIORITY_MAX);
	if (!out->period_ns)
		out->period_ns = RTXG_PERIOD_DEFAULT_NS;
	if (out->period_ns < RTXG_PERIOD_MIN_NS)
		return core_refuse(core, -EINVAL, "period (ns) is shorter than the shortest",
				   in->period_ns, RTXG_PERIOD_MIN_NS);
	if (out->period_ns > RTXG_PERIOD_MAX_NS)
		return core_refuse(core, -EINVAL, "period (ns) is longer than the longest",
				   in->period_ns, RTXG_PERIOD_MAX_NS);
	if (in->policy >= RTXG_TASK_POLICIES)
		return core_refuse(core, -EINVAL, "unknown task policy", in->policy,
				   RTXG_TASK_POLICIES - 1);
	if (in->reserved)
		return core_refuse(core, -EINVAL,
				   "a reserved field of the vGPU's parameters is not 0",
				   in->reserved, 0);
	/* Admission control: never promise what is promised already, or what switching will eat. */
	if (others + out->min_ppm > room)
		return core_refuse(core, -ENOSPC,
				   "reservation (ppm) is more than what is left to reserve",
				   out->min_ppm, room > others ? room - others : 0);
	return 0;
}

static int vgpu_add(struct rtxg_core *core, const struct rtxg_event *event)
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
	ret = check_vgpu_params(core, gpu, NULL, &event->vgpu_params, &params);
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
		account_init(&vgpu->accounts[i], vgpu, &gpu->engines[i], core->now);
	return 0;
}

static int vgpu_set(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct core_vgpu *vgpu = find_vgpu(core, event->vgpu);
	struct rtxg_vgpu_params params;
	bool anew;
	int ret;

	if (!vgpu)
		return core_refuse(core, -ENOENT, "no such vGPU", event->vgpu, 0);
	ret = check_vgpu_params(core, vgpu->gpu, vgpu, &event->vgpu_params, &params);
	if (ret)
		return ret;
	/*
	 * A change of weight or priority leaves the server's books alone; a change of its bandwidth
	 * opens new ones.
	 */
	anew = params.min_ppm != vgpu->params.min_ppm || params.max_ppm != vgpu->params.max_ppm ||
	       params.period_ns != vgpu->params.period_ns;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		queue_credit(&vgpu->accounts[i], core->now);
	vgpu->gpu->reserved_ppm += params.min_ppm;
	vgpu->gpu->reserved_ppm -= vgpu->params.min_ppm;
	vgpu->params = params;
	for (uint32_t id = 0; id < core->limits.tasks; id++) {
		struct core_task *task = &core->tasks[id];

		if (!task->open || task->vgpu != vgpu)
			continue;
		for (uint32_t i = 0; i < RTXG_ENGINES; i++)
			lane_requeue(core, task, i);
	}
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct core_account *account = &vgpu->accounts[i];

		if (anew)
			cbs_reset(account, core->now);
		account_place(core, account);
		core_mark(core, account->engine);
	}
	return 0;
}

static int vgpu_remove(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct core_vgpu *vgpu = find_vgpu(core, event->vgpu);
	struct core_gpu *gpu;

	if (!vgpu)
		return core_refuse(core, -ENOENT, "no such vGPU", event->vgpu, 0);
	if (vgpu->tasks)
		return core_refuse(core, -EBUSY, "the vGPU still has tasks", vgpu->tasks, 0);
	gpu = vgpu->gpu;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct core_account *account = &vgpu->accounts[i];
		struct core_engine *engine = account->engine;

		account_unplace(account);
		account_stop_thinking(account);
		heap_remove(&account->patience);
		if (engine->last == account)
			engine->last = NULL;
		if (engine->arrived == account)
			engine->arrived = NULL;
		if (engine->completed == account)
			engine->completed = NULL;
		if (engine->band_next == account) {
			engine->band_next = NULL;
			engine->band_until = NEVER;
			core_mark(core, engine);
		}
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

/* --- tasks --------------------------------------------------------------------------------- */

static int check_task_params(struct rtxg_core *core, const struct rtxg_task_params *in,
			     struct rtxg_task_params *out)
{
	*out = *in;
	if (!out->priority)
		out->priority = RTXG_PRIORITY_MIN;
	if (out->priority > RTXG_PRIORITY_MAX)
		return core_refuse(core, -EINVAL, "priority is over the highest", in->priority,
				   RTXG_PRIORITY_MAX);
	if (in->reserved)
		return core_refuse(core, -EINVAL,
				   "a reserved field of the task's parameters is not 0",
				   in->reserved, 0);
	if (in->deadline_ns == NEVER || in->period_ns == NEVER || in->runtime_ns == NEVER)
		return core_refuse(core, -EINVAL, "a time of the task's parameters is out of range",
				   NEVER, NEVER - 1);
	if (!out->deadline_ns)
		out->deadline_ns = out->period_ns;
	if (out->runtime_ns && out->deadline_ns && out->runtime_ns > out->deadline_ns)
		return core_refuse(core, -EINVAL, "runtime (ns) does not fit into the deadline",
				   out->runtime_ns, out->deadline_ns);
	return 0;
}

static int task_open(struct rtxg_core *core, const struct rtxg_event *event)
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
	ret = check_task_params(core, &event->task_params, &params);
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

static int task_set(struct rtxg_core *core, struct core_task *task, const struct rtxg_event *event)
{
	struct rtxg_task_params params;
	int ret = check_task_params(core, &event->task_params, &params);

	if (ret)
		return ret;
	task->params = params;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		lane_requeue(core, task, i);
	return 0;
}

/* Takes the task out of its vGPU's counts. */
static void task_leave(struct core_task *task)
{
	struct core_vgpu *vgpu = task->vgpu;

	if (--vgpu->tasks)
		return;
	vgpu->gpu->users--;
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		account_stop_thinking(&vgpu->accounts[i]);
}

static int task_move(struct rtxg_core *core, struct core_task *task, const struct rtxg_event *event)
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
	task_leave(task);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++)
		core_mark(core, &task->vgpu->gpu->engines[i]);
	task->vgpu = vgpu;
	if (!vgpu->tasks++)
		vgpu->gpu->users++;
	return 0;
}

static void task_close(struct rtxg_core *core, struct core_task *task)
{
	pool_leave(core, task);
	for (uint32_t i = 0; i < RTXG_ENGINES; i++) {
		struct core_lane *lane = &task->lanes[i];

		lane->again = false;
		if (lane->state == LANE_WAITING) {
			lane_leave_queue(core, task, i);
		} else if (lane->state != LANE_IDLE) {
			/*
			 * Nobody will say what it used: it is charged for all the time that it kept
			 * others waiting.
			 */
			lane_charge(core, task, i, 0);
			lane_release(core, task, i);
		}
		core_mark(core, &task->vgpu->gpu->engines[i]);
	}
	task_leave(task);
	task->open = false;
}

/* --- launches --------------------------------------------------------------------------------- */

static int arrival(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_lane *lane = &task->lanes[index];

	switch (lane->state) {
	case LANE_IDLE:
		lane_arrive(core, task, index, core->now);
		break;
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

static int cancel(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_lane *lane = &task->lanes[index];

	if (lane->state == LANE_WAITING) {
		lane_leave_queue(core, task, index);
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

static int busy(struct rtxg_core *core, struct core_task *task, uint32_t index)
{
	struct core_lane *lane = &task->lanes[index];
	struct core_account *account = &task->vgpu->accounts[index];

	if (lane->state != LANE_IDLE_HELD)
		return core_refuse(core, -EPERM, "the task was not reported idle on a permit",
				   task->id, index);
	lane->state = LANE_HELD;
	account_learn(account, core->now - account->idle_since);
	account_stop_thinking(account);
	core_mark(core, account->engine);
	return 0;
}

static int completion(struct rtxg_core *core, struct core_task *task, uint32_t index,
		      uint64_t used_ns, bool released)
{
	struct core_lane *lane = &task->lanes[index];
	struct core_account *account = &task->vgpu->accounts[index];

	if (lane->state == LANE_IDLE || lane->state == LANE_WAITING)
		return core_refuse(core, -EPERM, "the task has no permit", task->id, index);
	if (released && lane->state != LANE_REVOKING)
		return core_refuse(core, -EPERM, "the task's permit was not called back", task->id,
				   index);
	/*
	 * It launched again unseen, under the permit that it kept: the pause ended before what it
	 * used began.
	 */
	if (lane->state == LANE_IDLE_HELD && core->now - account->idle_since > used_ns)
		account_learn(account, core->now - account->idle_since - used_ns);
	lane_charge(core, task, index, used_ns);
	lane->stats.completions++;
	account->stats.completions++;
	if (lane->state == LANE_REVOKING || (lane->flags & RTXG_GRANT_ONESHOT)) {
		lane_release(core, task, index);
		if (lane->again) {
			lane->again = false;
			lane_arrive(core, task, index, lane->again_ns);
		}
	} else if (lane->flags & RTXG_GRANT_REPORT) {
		lane->state = LANE_IDLE_HELD;
		account->idle_since = core->now;
		if (!account->engine->waiting)
			/* the pause is at nobody's cost */
			lane->contended_ns = RTXG_TIME_NEVER;
	}
	core_mark(core, account->engine);
	return 0;
}

static void timer(struct rtxg_core *core)
{
	struct heap_node *node;

	core->armed = NEVER; /* a host's timer fires once */
	while ((node = heap_first(&core->timers)) && node->key <= core->now) {
		heap_remove(node);
		if (node->kind == TIMER_ENGINE)
			core_mark(core, heap_owner(node, struct core_engine, timer));
		else
			engine_expired(core, heap_owner(node, struct core_account, patience));
		/*
		 * engine_expired emits one action at most; the others wait for the next step if
		 * there is no room.
		 */
		if (core->action_count + RTXG_ACTIONS_MIN / 2 > core->action_cap)
			break;
	}
}

static int task_event(struct rtxg_core *core, const struct rtxg_event *event)
{
	struct core_task *task = find_task(core, event->task);

	if (!task)
		return core_refuse(core, -ENOENT, "no such task", event->task, 0);
	switch (event->type) {
	case RTXG_EV_SET:
		return task_set(core, task, event);
	case RTXG_EV_MOVE:
		return task_move(core, task, event);
	case RTXG_EV_CLOSE:
		task_close(core, task);
		return 0;
	default:
		break;
	}
	if (event->engine >= RTXG_ENGINES)
		return core_refuse(core, -EINVAL, "no such engine", event->engine,
				   RTXG_ENGINES - 1);
	switch (event->type) {
	case RTXG_EV_ARRIVAL:
		return arrival(core, task, event->engine);
	case RTXG_EV_CANCEL:
		return cancel(core, task, event->engine);
	case RTXG_EV_BUSY:
		return busy(core, task, event->engine);
	case RTXG_EV_COMPLETION:
		return completion(core, task, event->engine, event->used_ns, false);
	case RTXG_EV_RELEASED:
		return completion(core, task, event->engine, event->used_ns, true);
	case RTXG_EV_USAGE:
		if (task->lanes[event->engine].state != LANE_HELD &&
		    task->lanes[event->engine].state != LANE_REVOKING)
			return core_refuse(core, -EPERM, "the task has no permit", event->task,
					   event->engine);
		lane_charge(core, task, event->engine, event->used_ns);
		core_mark(core, &task->vgpu->gpu->engines[event->engine]);
		return 0;
	}
	return core_refuse(core, -EINVAL, "unknown event", event->type, RTXG_EV_TYPES - 1);
}

static int dispatch(struct rtxg_core *core, const struct rtxg_event *event)
{
	if (event->type >= RTXG_EV_TYPES)
		return core_refuse(core, -EINVAL, "unknown event", event->type, RTXG_EV_TYPES - 1);
	switch (event->type) {
	case RTXG_EV_NONE:
		return 0;
	case RTXG_EV_GPU_ADD:
		return gpu_add(core, event);
	case RTXG_EV_GPU_SET:
		return gpu_set(core, event);
	case RTXG_EV_GPU_REMOVE:
		return gpu_remove(core, event);
	case RTXG_EV_VGPU_ADD:
		return vgpu_add(core, event);
	case RTXG_EV_VGPU_SET:
		return vgpu_set(core, event);
	case RTXG_EV_VGPU_REMOVE:
		return vgpu_remove(core, event);
	case RTXG_EV_OPEN:
		return task_open(core, event);
	case RTXG_EV_TIMER:
		timer(core);
		return 0;
	case RTXG_EV_POOL_ADD:
	case RTXG_EV_POOL_REMOVE:
	case RTXG_EV_POOL_REQUEST:
	case RTXG_EV_POOL_RELEASE:
		return pool_event(core, event);
	default:
		return task_event(core, event);
	}
}

int rtxg_core_step(struct rtxg_core *core, uint64_t now_ns, const struct rtxg_event *event,
		   struct rtxg_action *actions, unsigned int cap)
{
	uint64_t before = core->now;
	int ret;

	core->refusal = (struct rtxg_refusal){ 0 };
	if (!actions || cap < RTXG_ACTIONS_MIN)
		return core_refuse(core, -EINVAL, "there is too little room for actions", cap,
				   RTXG_ACTIONS_MIN);
	if (now_ns < core->now)
		return core_refuse(core, -EINVAL, "time runs backwards (ns)", now_ns, core->now);
	if (now_ns == NEVER)
		return core_refuse(core, -EINVAL, "time is out of range", now_ns, NEVER - 1);
	if (event->reserved)
		return core_refuse(core, -EINVAL, "a reserved field of the event is not 0",
				   event->reserved, 0);

	core->now = now_ns;
	core->actions = actions;
	core->action_count = 0;
	core->action_cap = cap;
	ret = dispatch(core, event);
	if (ret < 0)
		core->now = before;
	else
		core_flush(core);
	core->actions = NULL;
	if (ret < 0)
		return ret;
	/*
	 * A full buffer is how the host knows to come again; with work left over but room unused,
	 * say "full" by filling it.
	 */
	if (core->dirty_first)
		while (core->action_count < core->action_cap) {
			core->actions = actions;
			core_emit(core, RTXG_ACT_ARM_TIMER)->at_ns = core->armed;
			core->actions = NULL;
		}
	return (int)core->action_count;
}

/* --- views ------------------------------------------------------------------------------------ */

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
	const struct core_vgpu *v;

	if (vgpu >= core->limits.vgpus || !core->vgpus[vgpu].used)
		return -ENOENT;
	if (engine >= RTXG_ENGINES)
		return -EINVAL;
	v = &core->vgpus[vgpu];
	/*
	 * Credit is brought up to date when somebody looks; the looker of a const core has a copy
	 * for that.
	 */
	shown = v->accounts[engine];
	now_ns = max_u64(now_ns, core->now);
	queue_credit(account, now_ns);
	*view = (struct rtxg_account_view){
		.stats = account->stats,
		.credit_ns =
			v->gpu->params.policy == RTXG_GPU_CBS ? account->budget : account->credit,
		.deadline_ns = account->deadline,
		.used_ppm = account_used_ppm(account, now_ns),
		.waiting = account->waiters.count,
		.holder = account->holder_task ? account->holder_task->id : RTXG_NONE,
		.tasks = v->tasks,
	};
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
				if (gpu->params.policy != RTXG_GPU_NULL &&
				    !account->ready.heap != !account->waiters.count &&
				    !(account->wake.heap && account->waiters.count))
					return "an account is in a heap of its engine exactly "
					       "while somebody waits in it";
			}
			if (waiting != engine->waiting)
				return "an engine's count of waiters is the sum over its accounts";
			if (permits != engine->permits)
				return "an engine's count of permits is the sum over its accounts";
			if (engine->holder && !engine->holder->holder)
				return "an engine's holder has a permit";
		}
	}
	return NULL;
}
