// SPDX-License-Identifier: GPL-2.0-only
/*
 * host.c - hosts the core in the kernel: what tasks' pages and the clock say becomes events, what
 * the core answers becomes permits.
 *
 * One raw lock covers the core and what is remembered of the lanes; steps are short, allocate
 * nothing and may come from a timer. Pages belong to their tasks, who may write anything into them
 * at any time: a word is read once for each decision, is only compared with what was seen before,
 * and never used as an index or a size.
 *
 * May not: decide who runs; read its own permits back; believe a page.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "cpu/cpu.h"
#include "host.h"

#define ACTIONS 16u

static unsigned int max_tasks = 1024;
module_param(max_tasks, uint, 0444);
MODULE_PARM_DESC(max_tasks, "GPU tasks at a time, 1..4096 (1024)");

static unsigned int max_vgpus = 128;
module_param(max_vgpus, uint, 0444);
MODULE_PARM_DESC(max_vgpus, "vGPUs over all GPUs, 1..1024 (128)");

static char *policy = "cbs";
module_param(policy, charp, 0444);
MODULE_PARM_DESC(policy, "policy between vGPUs of a GPU that nobody configured: null, fifo, "
			 "credit, band, cbs (cbs)");

unsigned int rtxg_tasks_per_user = 512;
module_param_named(tasks_per_user, rtxg_tasks_per_user, uint, 0644);
MODULE_PARM_DESC(tasks_per_user, "GPU tasks at a time of one user without CAP_SYS_RESOURCE (512)");

struct rtxg_host rtxg_host;

/* ---- permits ---- */

static void set_permit(struct lane *lane, u32 bits)
{
	/*
	 * xchg is a full barrier: what the client does before looking at the permit we see when we
	 * look at in_flight
	 */
	xchg(&lane->entity->page->lanes[lane->engine].permit,
	     lane->sequence << RTXG_PERMIT_SEQ_SHIFT | bits);
}

static void grant(struct lane *lane, u32 flags, bool anew)
{
	u32 bits = RTXG_PERMIT_GRANTED;

	if (anew)
		lane->sequence++;
	if (flags & RTXG_GRANT_ONESHOT)
		bits |= RTXG_PERMIT_ONESHOT;
	if (flags & RTXG_GRANT_REPORT)
		bits |= RTXG_PERMIT_REPORT;
	set_permit(lane, bits);
	if (anew)
		rtxg_waiters_wake(&lane->waiters, UINT_MAX);
}

static void revoke(struct lane *lane)
{
	set_permit(lane, 0);
	/* those who wait for the permit to be called back wait on the same word */
	rtxg_waiters_wake(&lane->waiters, UINT_MAX);
}

/* ---- the core; host.lock is held ---- */

static void set_state(struct lane *lane, enum lane_state state)
{
	struct account_engine *e = &lane->entity->account->engines[lane->engine];
	bool was = lane->state != LANE_FREE, is = state != LANE_FREE;

	lane->state = state;
	if (was == is)
		return;
	if (is) {
		if (!e->active++)
			e->active_since = ktime_get_ns();
	} else if (!--e->active) {
		e->active_ns += ktime_get_ns() - e->active_since;
	}
}

static void queue_look(struct lane *lane)
{
	if (list_empty(&lane->look))
		list_add_tail(&lane->look, &host.looks);
}

static struct rtxg_lane *words(struct lane *lane)
{
	return &lane->entity->page->lanes[lane->engine];
}

/*
 * The core wants the permit back. If a thread that waited for it is on its way and has not launched
 * yet, the permit is cut down to that one launch: otherwise two tasks that both wait could take the
 * permit from each other without end, before either has run. If that launch never comes (a stopped
 * program) the core's patience ends, and the task is expelled.
 */
static void call_back(struct lane *lane)
{
	struct rtxg_lane *p = words(lane);

	lane->last = lane->state == LANE_HELD && !lane->entity->moving_to && READ_ONCE(p->want) &&
		     !READ_ONCE(p->in_flight) && READ_ONCE(p->launches) == lane->launches_at;
	set_state(lane, LANE_REVOKED);
	/*
	 * REPORT: a launch that was faster than this word leaves the permit behind, and must ring
	 * all the same
	 */
	if (lane->last)
		set_permit(lane, RTXG_PERMIT_GRANTED | RTXG_PERMIT_ONESHOT | RTXG_PERMIT_REPORT);
	else
		revoke(lane);
}

static u64 claimed_use(struct lane *lane, u64 now)
{
	struct rtxg_lane *p = words(lane);
	u64 since, claimed, used = 0;
	int tries = 3;

	/* written one after the other: a pair is good if the first did not change */
	do {
		since = READ_ONCE(p->busy_since);
		smp_rmb();
		claimed = READ_ONCE(p->busy_ns);
		smp_rmb();
	} while (READ_ONCE(p->busy_since) != since && --tries);
	if (since && since < now)
		claimed += now - since;
	if (claimed > lane->claimed_ns) {
		used = claimed - lane->claimed_ns;
		lane->claimed_ns = claimed;
	}
	return used;
}

static void apply(const struct rtxg_action *action)
{
	struct khost_task *entity = action->task < max_tasks ? host.entities[action->task] : NULL;
	struct lane *lane =
		entity && action->engine < RTXG_ENGINES ? &entity->lanes[action->engine] : NULL;

	switch (action->type) {
	case RTXG_ACT_GRANT: {
		bool anew;

		if (WARN_ON_ONCE(!lane))
			return;
		anew = lane->state != LANE_HELD;
		lane->flags = action->flags;
		if (anew) {
			lane->again = false;
			lane->last = false;
			lane->idle_reported = false;
			lane->launches_at = READ_ONCE(words(lane)->launches);
			set_state(lane, LANE_HELD);
		}
		/* a task that is being moved gets its permit from its new vGPU */
		if (!entity->moving_to)
			grant(lane, action->flags, anew);
		/* it may have fallen idle under a permit that asked for no report */
		if (!anew)
			queue_look(lane);
		break;
	}
	case RTXG_ACT_REVOKE:
		if (WARN_ON_ONCE(!lane))
			return;
		call_back(lane);
		queue_look(lane);
		break;
	case RTXG_ACT_EXPEL:
		if (WARN_ON_ONCE(!lane))
			return;
		revoke(lane);
		set_state(lane, LANE_FREE);
		lane->again = lane->last = false;
		queue_look(lane);
		break;
	case RTXG_ACT_ARM_TIMER:
		if (action->at_ns == RTXG_TIME_NEVER)
			hrtimer_try_to_cancel(&host.timer);
		else
			hrtimer_start(&host.timer,
				      ns_to_ktime(min_t(u64, action->at_ns, KTIME_MAX)),
				      HRTIMER_MODE_ABS_HARD);
		break;
	case RTXG_ACT_POOL_GRANT:
		if (WARN_ON_ONCE(!entity))
			return;
		entity->pool_held = true;
		entity->pool_gpu = action->gpu;
		rtxg_waiters_wake(&entity->pool_waiters, UINT_MAX);
		break;
	default:
		/*
		 * a gate has no slices and stops nothing in mid-flight; the core's queues know who
		 * inherits
		 */
		break;
	}
}

static int step(const struct rtxg_event *event)
{
	static const struct rtxg_event none = { .type = RTXG_EV_NONE };
	struct rtxg_action actions[ACTIONS];
	int n, first;

	lockdep_assert_held(&host.lock);
	first = n = rtxg_core_step(host.core, ktime_get_ns(), event, actions, ACTIONS);
	while (n > 0) {
		for (int i = 0; i < n; i++)
			apply(&actions[i]);
		if (n < (int)ACTIONS)
			break;
		n = rtxg_core_step(host.core, ktime_get_ns(), &none, actions, ACTIONS);
	}
	return min(first, 0);
}

static int lane_event(struct lane *lane, u32 type, u64 used)
{
	struct rtxg_event event = {
		.type = type, .task = lane->entity->id, .engine = lane->engine, .used_ns = used
	};

	return step(&event);
}

/* The permit has ended. If somebody of the task wants another, the core knows already. */
static void permit_ended(struct lane *lane, u32 type)
{
	bool again = lane->again;

	lane->again = false;
	set_state(lane, again ? LANE_WAITING : LANE_FREE);
	lane_event(lane, type, claimed_use(lane, ktime_get_ns()));
}

/* ---- accounts up to this moment, and moves ---- */

/*
 * Device time and launches, on which nothing depends: for people to see, and bounded to what is
 * possible.
 */
static void claims(struct khost_task *entity)
{
	u64 most = ktime_get_ns() - entity->opened_ns;

	for (u32 i = 0; i < RTXG_ENGINES; i++) {
		struct lane *lane = &entity->lanes[i];
		struct account_engine *e = &entity->account->engines[i];
		u64 device = min(READ_ONCE(words(lane)->device_ns), most);
		/* a launch takes some nanoseconds */
		u64 launches = min_t(u64, READ_ONCE(words(lane)->launches), most / 8);

		if (device > lane->device_seen) {
			e->device_ns += device - lane->device_seen;
			lane->device_seen = device;
		}
		if (launches > lane->launches_seen) {
			e->launches += launches - lane->launches_seen;
			lane->launches_seen = launches;
		}
	}
}

/* Charges what the task has used up to now. */
static void usage(struct khost_task *entity)
{
	for (u32 i = 0; i < RTXG_ENGINES; i++) {
		struct lane *lane = &entity->lanes[i];
		u64 claimed = lane->claimed_ns;

		if (lane->state != LANE_HELD && lane->state != LANE_REVOKED)
			continue;
		if (lane->idle_reported) {
			if (!READ_ONCE(words(lane)->in_flight))
				continue;
			lane->idle_reported = false;
			lane_event(lane, RTXG_EV_BUSY, 0);
		}
		if (lane_event(lane, RTXG_EV_USAGE, claimed_use(lane, ktime_get_ns())))
			/* not taken: it comes with the next report */
			lane->claimed_ns = claimed;
	}
	claims(entity);
}

/*
 * Before a task ends: a permit that it merely kept is not time that it used, and the core, which
 * would charge it all, is told so.
 */
static void settle(struct khost_task *entity)
{
	usage(entity);
	for (u32 i = 0; i < RTXG_ENGINES; i++)
		if (entity->lanes[i].state == LANE_HELD && entity->lanes[i].idle_reported)
			lane_event(&entity->lanes[i], RTXG_EV_BUSY, 0);
}

/*
 * Nothing of it may be in flight: it leaves the one vGPU and enters the other, and what it wants it
 * wants there.
 */
static void finish_move(struct khost_task *entity)
{
	struct rtxg_event event = { .type = RTXG_EV_CLOSE, .task = entity->id };
	struct account *from = entity->account, *to = entity->moving_to;

	for (u32 i = 0; i < RTXG_ENGINES; i++)
		if (READ_ONCE(words(&entity->lanes[i])->in_flight))
			return;
	settle(entity);
	for (u32 i = 0; i < RTXG_ENGINES; i++) {
		struct rtxg_stats now, *sum = &entity->before[i];

		if (!rtxg_core_task_stats(host.core, entity->id, i, &now)) {
			sum->busy_ns += now.busy_ns;
			sum->used_ns += now.used_ns;
			sum->wait_ns += now.wait_ns;
			sum->grants += now.grants;
			sum->completions += now.completions;
			sum->overruns += now.overruns;
			sum->expelled += now.expelled;
			sum->throttled += now.throttled;
		}
		set_state(&entity->lanes[i], LANE_FREE);
		entity->lanes[i].again = entity->lanes[i].last = false;
	}
	WARN_ON_ONCE(step(&event));
	entity->moving_to = NULL;
	to->incoming--;
	from->tasks--;
	to->tasks++;
	entity->account = to;
	host.sweep = true;
	event = (struct rtxg_event){ .type = RTXG_EV_OPEN,
				     .task = entity->id,
				     .vgpu = to->id,
				     .task_params = entity->params };
	WARN_ON_ONCE(step(&event));
	for (u32 i = 0; i < RTXG_ENGINES; i++)
		queue_look(&entity->lanes[i]);
}

/* What the client has done to its page since we looked last becomes events. */
static void look(struct lane *lane)
{
	struct rtxg_lane *p = words(lane);
	u32 in_flight, want;
	u64 launches;

	smp_mb(); /* the client's stores before it rang; our permit before this look */
	if (lane->entity->moving_to) {
		finish_move(lane->entity);
		return;
	}
	in_flight = READ_ONCE(p->in_flight);
	want = READ_ONCE(p->want);
	if (lane->state == LANE_REVOKED && lane->last && !in_flight &&
	    (READ_ONCE(p->launches) != lane->launches_at || !want)) {
		/* it was used, or nobody wants it any more; a launch may just be being made */
		revoke(lane);
		in_flight = READ_ONCE(p->in_flight);
		lane->last = false;
	}
	if (lane->state == LANE_REVOKED && !lane->last && !in_flight)
		permit_ended(lane, RTXG_EV_RELEASED);
	if (lane->state == LANE_HELD && !in_flight) {
		launches = READ_ONCE(p->launches);
		if (lane->flags & RTXG_GRANT_ONESHOT) {
			if (launches != lane->launches_at) {
				revoke(lane);
				permit_ended(lane, RTXG_EV_COMPLETION);
			} else if (!want) {
				/*
				 * nobody wants it any more: back, unless a launch is just being
				 * made
				 */
				revoke(lane);
				if (!READ_ONCE(p->in_flight))
					permit_ended(lane, RTXG_EV_COMPLETION);
			}
		} else if (lane->flags & RTXG_GRANT_REPORT &&
			   (launches != lane->launches_at || (!want && !lane->idle_reported))) {
			/*
			 * nothing launched but somebody wants to: a thread is on its way to use the
			 * permit
			 */
			lane->launches_at = launches;
			lane->idle_reported = true;
			lane_event(lane, RTXG_EV_COMPLETION, claimed_use(lane, ktime_get_ns()));
		}
	}
	switch (lane->state) {
	case LANE_FREE:
		if (want) {
			set_state(lane, LANE_WAITING);
			if (lane_event(lane, RTXG_EV_ARRIVAL, 0))
				set_state(lane, LANE_FREE);
		}
		break;
	case LANE_WAITING:
		if (!want) {
			set_state(lane, LANE_FREE);
			lane_event(lane, RTXG_EV_CANCEL, 0);
		}
		break;
	case LANE_HELD:
		/* another thread of the task, while a one-shot permit is in use */
		if (!(lane->flags & RTXG_GRANT_ONESHOT) ||
		    READ_ONCE(p->launches) == lane->launches_at)
			break;
		fallthrough;
	case LANE_REVOKED:
		if (lane->last && READ_ONCE(p->launches) == lane->launches_at)
			break; /* what is wanted is this permit */
		if (want && !lane->again)
			lane->again = !lane_event(lane, RTXG_EV_ARRIVAL, 0);
		else if (!want && lane->again && !lane_event(lane, RTXG_EV_CANCEL, 0))
			lane->again = false;
		break;
	}
}

static void run_looks(void)
{
	struct lane *lane;

	while ((lane = list_first_entry_or_null(&host.looks, struct lane, look))) {
		list_del_init(&lane->look);
		look(lane);
	}
}

static enum hrtimer_restart timer_due(struct hrtimer *timer)
{
	static const struct rtxg_event due = { .type = RTXG_EV_TIMER };
	unsigned long flags;

	raw_spin_lock_irqsave(&host.lock, flags);
	/*
	 * a launch under a permit that was reported idle makes no sound: look before the core acts
	 * on idleness
	 */
	for (u32 g = 0; g < RTXG_HOST_GPUS; g++) {
		for (u32 engine = 0; READ_ONCE(host.gpus[g].used) && engine < RTXG_ENGINES;
		     engine++) {
			u32 id = rtxg_core_idle_holder(host.core, g, engine);
			struct khost_task *entity = id < max_tasks ? host.entities[id] : NULL;
			struct lane *lane = entity ? &entity->lanes[engine] : NULL;

			if (!lane || lane->state != LANE_HELD || !READ_ONCE(words(lane)->in_flight))
				continue;
			lane->idle_reported = false;
			lane_event(lane, RTXG_EV_BUSY, 0);
		}
	}
	run_looks();
	step(&due);
	run_looks();
	raw_spin_unlock_irqrestore(&host.lock, flags);
	return HRTIMER_NORESTART;
}

int rtxg_host_event(const struct rtxg_event *event)
{
	int err;

	lockdep_assert_held(&host.objects);
	raw_spin_lock_irq(&host.lock);
	err = step(event);
	if (err)
		host.refusal = rtxg_core_refusal(host.core);
	run_looks();
	raw_spin_unlock_irq(&host.lock);
	return err;
}

void rtxg_host_begin(void)
{
	mutex_lock(&host.objects);
	host.refusal = (struct rtxg_refusal){};
}

void rtxg_host_end(struct rtxg_file *file)
{
	file->refused = host.refusal.what;
	file->refused_value = host.refusal.value;
	file->refused_limit = host.refusal.limit;
	mutex_unlock(&host.objects);
}

/*
 * Brings all accounts up to this moment, rather than to the last completion. One task at a time:
 * interrupts are off for no longer.
 */
void rtxg_host_usage(void)
{
	lockdep_assert_held(&host.objects);
	for (u32 i = 0; i < host.max_tasks; i++) {
		if (!host.entities[i])
			continue;
		raw_spin_lock_irq(&host.lock);
		usage(host.entities[i]);
		run_looks();
		raw_spin_unlock_irq(&host.lock);
	}
}

/* Takes the permits back; the move happens at once, or when the last launch in flight has ended. */
int rtxg_host_move(struct khost_task *entity, struct account *to)
{
	lockdep_assert_held(&host.objects);
	raw_spin_lock_irq(&host.lock);
	if (entity->moving_to)
		entity->moving_to->incoming--;
	if (to != entity->account || entity->moving_to) {
		to->incoming++;
		entity->moving_to = to;
		for (u32 i = 0; i < RTXG_ENGINES; i++) {
			revoke(&entity->lanes[i]);
			queue_look(&entity->lanes[i]);
		}
	}
	run_looks();
	raw_spin_unlock_irq(&host.lock);
	return 0;
}

/* ---- names; host.objects is held ---- */

bool rtxg_host_good_name(char name[RTXG_HOST_NAME], const char *otherwise)
{
	if (!name[0] && otherwise)
		strscpy(name, otherwise, RTXG_HOST_NAME);
	return name[0] && strnlen(name, RTXG_HOST_NAME) < RTXG_HOST_NAME;
}

int rtxg_host_find_gpu(const char *name)
{
	for (u32 i = 0; i < RTXG_HOST_GPUS; i++)
		if (host.gpus[i].used && !strcmp(host.gpus[i].name, name))
			return i;
	return -ENOENT;
}

int rtxg_host_get_gpu(const char *name, bool automatic)
{
	struct rtxg_event event = { .type = RTXG_EV_GPU_ADD, .gpu_params = host.gpu_default };
	int err = rtxg_host_find_gpu(name);

	if (err >= 0) {
		host.gpus[err].automatic &= automatic;
		return err;
	}
	/*
	 * the first place is kept for "0": whoever thinks up names cannot take it from those who
	 * name none
	 */
	for (event.gpu = strcmp(name, "0") ? 1 : 0;
	     event.gpu < RTXG_HOST_GPUS && host.gpus[event.gpu].used; event.gpu++)
		;
	if (event.gpu == RTXG_HOST_GPUS)
		return -ENOSPC;
	err = rtxg_host_event(&event);
	if (err)
		return err;
	strscpy(host.gpus[event.gpu].name, name, RTXG_HOST_NAME);
	host.gpus[event.gpu].automatic = automatic;
	host.gpus[event.gpu].params = host.gpu_default;
	host.gpus[event.gpu].cookie = 0;
	WRITE_ONCE(host.gpus[event.gpu].used, true);
	return event.gpu;
}

struct account *rtxg_host_find_account(u32 gpu, const char *name)
{
	for (u32 i = 0; i < max_vgpus; i++)
		if (host.accounts[i].used && host.accounts[i].gpu == gpu &&
		    !strcmp(host.accounts[i].name, name))
			return &host.accounts[i];
	return NULL;
}

struct account *rtxg_host_new_account(u32 gpu, const char *name,
				      const struct rtxg_vgpu_params *params)
{
	struct rtxg_event event = { .type = RTXG_EV_VGPU_ADD, .gpu = gpu, .vgpu_params = *params };
	struct account *account;
	int err;

	for (event.vgpu = 0; event.vgpu < max_vgpus && host.accounts[event.vgpu].used; event.vgpu++)
		;
	if (event.vgpu == max_vgpus)
		return ERR_PTR(-ENOSPC);
	err = rtxg_host_event(&event);
	if (err)
		return ERR_PTR(err);
	account = &host.accounts[event.vgpu];
	*account = (struct account){ .used = true,
				     .id = event.vgpu,
				     .gpu = gpu,
				     .group = RTXG_HOST_EVERYBODY,
				     .params = *params };
	strscpy(account->name, name, RTXG_HOST_NAME);
	return account;
}

/* The last task has left: what was made for it goes. */
static void drop_automatic(struct account *account)
{
	struct rtxg_event event = { .type = RTXG_EV_VGPU_REMOVE, .vgpu = account->id };
	struct rtxg_refusal refusal = host.refusal; /* of what was asked, not of this */
	u32 gpu = account->gpu;

	/* refused while a task is in it; one on its way here is not known to the core */
	if (account->automatic && !READ_ONCE(account->incoming) && !rtxg_host_event(&event))
		account->used = false;
	event = (struct rtxg_event){ .type = RTXG_EV_GPU_REMOVE, .gpu = gpu };
	/* refused while anything else is on it */
	if (host.gpus[gpu].automatic && !rtxg_host_event(&event))
		WRITE_ONCE(host.gpus[gpu].used, false);
	host.refusal = refusal;
}

/* After moves, which happen where nothing can be removed. */
void rtxg_host_sweep(void)
{
	lockdep_assert_held(&host.objects);
	if (!xchg(&host.sweep, false))
		return;
	for (u32 i = 0; i < host.max_vgpus; i++)
		if (host.accounts[i].used && host.accounts[i].automatic &&
		    !READ_ONCE(host.accounts[i].tasks))
			drop_automatic(&host.accounts[i]);
}

int rtxg_host_find_pool(const char *name)
{
	for (u32 i = 0; i < RTXG_HOST_POOLS; i++)
		if (host.pools[i].used && !strcmp(host.pools[i].name, name))
			return i;
	return -ENOENT;
}

/* ---- tasks ---- */

static bool may_use(const struct account *account)
{
	kgid_t gid;

	if (account->group == RTXG_HOST_EVERYBODY) {
		if (!account->users_count)
			return true;
	} else {
		gid = make_kgid(&init_user_ns, account->group);
		if (gid_valid(gid) && in_group_p(gid))
			return true;
	}
	for (u32 i = 0; i < account->users_count; i++)
		if (uid_eq(account->users[i], current_euid()))
			return true;
	return capable(CAP_SYS_NICE);
}

static bool too_many(void)
{
	kuid_t uid = current_euid();
	u32 count = 0;

	for (u32 i = 0; i < host.max_tasks; i++)
		count += host.entities[i] && uid_eq(host.entities[i]->uid, uid);
	return count >= READ_ONCE(rtxg_tasks_per_user) && !capable(CAP_SYS_RESOURCE);
}

static struct khost_task *new_entity(void)
{
	struct khost_task *entity = kzalloc(sizeof(*entity), GFP_KERNEL_ACCOUNT);

	if (!entity)
		return NULL;
	entity->page = (struct rtxg_page *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
	if (!entity->page) {
		kfree(entity);
		return NULL;
	}
	entity->pid = get_task_pid(current, PIDTYPE_TGID);
	entity->uid = current_euid();
	entity->pool = RTXG_NONE;
	rtxg_waiters_init(&entity->pool_waiters, rtxg_cpu_charge_gpu);
	for (u32 i = 0; i < RTXG_ENGINES; i++) {
		struct lane *lane = &entity->lanes[i];

		INIT_LIST_HEAD(&lane->look);
		lane->entity = entity;
		lane->engine = i;
		rtxg_waiters_init(&lane->waiters, rtxg_cpu_charge_gpu);
	}
	return entity;
}

static void free_entity(struct khost_task *entity)
{
	/* a mapping of it may outlive us: the page itself goes with its last user */
	free_page((unsigned long)entity->page);
	put_pid(entity->pid);
	kfree(entity);
}

/* A task has come or gone. */
static void tasks_changed(void)
{
	lockdep_assert_held(&host.objects);
	WRITE_ONCE(host.changes, host.changes + 1);
	if (host.front)
		wake_up_interruptible(&host.front_wait);
}

static int enter(struct khost_task *entity, struct rtxg_host_open *open)
{
	static const struct rtxg_vgpu_params plain;
	struct rtxg_event event = {
		.type = RTXG_EV_OPEN,
		.task_params = { .runtime_ns = open->runtime_ns,
				 .deadline_ns = open->deadline_ns,
				 .period_ns = open->period_ns },
	};
	struct account *account;
	bool made = true;
	int gpu, err;

	if (too_many())
		return -EDQUOT;
	/* a name that nobody configured is only taken if there is a vGPU to put the task into */
	gpu = strcmp(open->vgpu, "default") ? rtxg_host_find_gpu(open->gpu)
					    : rtxg_host_get_gpu(open->gpu, true);
	if (gpu < 0)
		return gpu;
	account = rtxg_host_find_account(gpu, open->vgpu);
	if (!account && strcmp(open->vgpu, "default"))
		return -ENOENT;
	if (!account)
		account = rtxg_host_new_account(gpu, open->vgpu, &plain);
	else
		made = false;
	if (IS_ERR(account))
		return PTR_ERR(account);
	account->automatic |= made;
	err = -EACCES;
	if (!may_use(account))
		goto drop;
	err = -EPERM;
	if (account->task_priority && open->priority > account->task_priority &&
	    !capable(CAP_SYS_NICE))
		goto drop;
	event.task_params.priority = open->priority ?: account->task_priority;
	for (event.task = 0; event.task < max_tasks && host.entities[event.task]; event.task++)
		;
	err = -ENOSPC;
	if (event.task == max_tasks)
		goto drop;
	event.vgpu = account->id;
	entity->id = event.task;
	entity->account = account;
	entity->serial = ++host.serial;
	entity->opened_ns = ktime_get_ns();
	entity->params = event.task_params;
	entity->priority_limit = account->task_priority
					 ? max(account->task_priority, event.task_params.priority)
					 : 0;
	*entity->page = (struct rtxg_page){
		.magic = RTXG_PAGE_MAGIC,
		.version = RTXG_PAGE_VERSION,
		.size = sizeof(struct rtxg_page),
		.gpu = gpu,
		.host_generation = host.generation,
		.flags = RTXG_PAGE_F_FAIL_CLOSED,
	};
	raw_spin_lock_irq(&host.lock);
	err = step(&event);
	if (err) {
		host.refusal = rtxg_core_refusal(host.core);
	} else {
		host.entities[entity->id] = entity;
		account->tasks++;
	}
	run_looks();
	raw_spin_unlock_irq(&host.lock);
	if (err)
		goto drop;
	host.tasks++;
	tasks_changed();
	return 0;
drop:
	drop_automatic(account);
	return err;
}

int rtxg_host_open(struct rtxg_file *file, struct rtxg_host_open *open)
{
	struct khost_task *entity;
	int err;

	if (open->flags || !rtxg_all_zero(open->reserved, sizeof(open->reserved)) ||
	    !rtxg_host_good_name(open->gpu, "0") || !rtxg_host_good_name(open->vgpu, "default"))
		return -EINVAL;
	entity = new_entity();
	if (!entity)
		return -ENOMEM;
	mutex_lock(&file->lock);
	rtxg_host_begin();
	rtxg_host_sweep();
	err = file->entity ? -EALREADY : enter(entity, open);
	rtxg_host_end(file);
	if (!err)
		/* calls that need no lock see a finished task or none */
		smp_store_release(&file->entity, entity);
	mutex_unlock(&file->lock);
	if (err) {
		free_entity(entity);
		return err;
	}
	open->task = entity->id;
	open->generation = host.generation;
	return 0;
}

static long host_open(struct rtxg_file *file, struct rtxg_host_open __user *user)
{
	struct rtxg_host_open open;
	int err;

	err = rtxg_copy_in(&open, sizeof(open), sizeof(open), user);
	if (!err)
		err = rtxg_host_open(file, &open);
	return err ?: rtxg_copy_out(user, &open, sizeof(open), open.size);
}

/*
 * The file is closing, no call is under way on it: whatever the task held or wanted is free at
 * once.
 */
void rtxg_host_release(struct rtxg_file *file)
{
	struct khost_task *entity = file->entity;
	struct rtxg_event event = { .type = RTXG_EV_CLOSE };
	struct account *account;

	if (!entity)
		return;
	mutex_lock(&host.objects);
	raw_spin_lock_irq(&host.lock);
	event.task = entity->id;
	settle(entity);
	account = entity->account;
	if (entity->moving_to)
		entity->moving_to->incoming--;
	entity->moving_to = NULL;
	if (entity->pool != RTXG_NONE) {
		struct rtxg_event release = { .type = RTXG_EV_POOL_RELEASE,
					      .pool = entity->pool,
					      .task = entity->id };

		step(&release);
	}
	WARN_ON(step(&event));
	host.entities[entity->id] = NULL;
	for (u32 i = 0; i < RTXG_ENGINES; i++) {
		set_state(&entity->lanes[i], LANE_FREE);
		list_del_init(&entity->lanes[i].look);
	}
	account->tasks--;
	run_looks();
	raw_spin_unlock_irq(&host.lock);
	host.tasks--;
	drop_automatic(account);
	rtxg_host_sweep();
	tasks_changed();
	mutex_unlock(&host.objects);
	file->entity = NULL;
	free_entity(entity);
}

int rtxg_host_mmap(struct rtxg_file *file, struct vm_area_struct *vma)
{
	struct khost_task *entity = smp_load_acquire(&file->entity);

	if (!entity)
		return -EBADFD;
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != PAGE_SIZE ||
	    !(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return -EINVAL;
	/* no child and no debugger's core gets it */
	rtxg_vm_flags(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
	return vm_insert_page(vma, vma->vm_start, virt_to_page(entity->page));
}

static long host_ring(struct khost_task *entity)
{
	raw_spin_lock_irq(&host.lock);
	for (u32 i = 0; i < RTXG_ENGINES; i++)
		look(&entity->lanes[i]);
	run_looks();
	raw_spin_unlock_irq(&host.lock);
	return 0;
}

static long host_wait(struct khost_task *entity, const struct rtxg_host_wait __user *user)
{
	struct rtxg_waiter waiter = { .since_ns = ktime_get_mono_fast_ns() };
	struct rtxg_host_wait wait;
	struct lane *lane;
	long result;
	ktime_t end;
	u32 wakes;

	result = rtxg_copy_in(&wait, sizeof(wait), sizeof(wait), user);
	if (result)
		return result;
	if (wait.lane >= RTXG_ENGINES || wait.reserved)
		return -EINVAL;
	lane = &entity->lanes[wait.lane];
	wakes = READ_ONCE(lane->wakes);
	end = ns_to_ktime(min_t(u64, wait.until_ns, KTIME_MAX));
	for (;;) {
		rtxg_waiters_add(&lane->waiters, &waiter);
		set_current_state(TASK_INTERRUPTIBLE);
		if (READ_ONCE(words(lane)->permit) != wait.value || READ_ONCE(lane->wakes) != wakes)
			result = 0;
		else if (signal_pending(current))
			result = -ERESTARTSYS;
		else if (wait.until_ns != U64_MAX && ktime_compare(ktime_get(), end) >= 0)
			result = -ETIMEDOUT;
		else
			result = 1;
		if (result <= 0)
			break;
		schedule_hrtimeout(wait.until_ns == U64_MAX ? NULL : &end, HRTIMER_MODE_ABS);
		__set_current_state(TASK_RUNNING);
		rtxg_waiters_remove(&lane->waiters, &waiter);
	}
	__set_current_state(TASK_RUNNING);
	rtxg_waiters_remove(&lane->waiters, &waiter);
	return result;
}

static long host_wake(struct khost_task *entity, unsigned long lane)
{
	if (lane >= RTXG_ENGINES)
		return -EINVAL;
	WRITE_ONCE(entity->lanes[lane].wakes, entity->lanes[lane].wakes + 1);
	smp_mb(); /* a waiter that is not in the list yet sees the count */
	rtxg_waiters_wake(&entity->lanes[lane].waiters, UINT_MAX);
	return 0;
}

/* objects is held. */
int rtxg_host_set_task(struct khost_task *entity, const struct rtxg_task_params *params)
{
	struct rtxg_event event = { .type = RTXG_EV_SET,
				    .task = entity->id,
				    .task_params = *params };
	int err;

	lockdep_assert_held(&host.objects);
	raw_spin_lock_irq(&host.lock);
	err = step(&event);
	if (err)
		host.refusal = rtxg_core_refusal(host.core);
	else
		entity->params = *params; /* under lock: a move takes it along */
	run_looks();
	raw_spin_unlock_irq(&host.lock);
	return err;
}

/* A value of 0 stays as it is. */
int rtxg_host_set(struct rtxg_file *file, const struct rtxg_host_set *set,
		  struct rtxg_host_set *before)
{
	struct khost_task *entity = smp_load_acquire(&file->entity);
	struct rtxg_task_params params;
	int err;

	if (!entity)
		return -EBADFD;
	if (!rtxg_all_zero(set->reserved, sizeof(set->reserved)))
		return -EINVAL;
	rtxg_host_begin();
	*before = (struct rtxg_host_set){ .priority = entity->params.priority,
					  .runtime_ns = entity->params.runtime_ns,
					  .deadline_ns = entity->params.deadline_ns,
					  .period_ns = entity->params.period_ns };
	params = (struct rtxg_task_params){
		.priority = set->priority ?: entity->params.priority,
		.runtime_ns = set->runtime_ns ?: entity->params.runtime_ns,
		.deadline_ns = set->deadline_ns ?: entity->params.deadline_ns,
		.period_ns = set->period_ns ?: entity->params.period_ns,
	};
	if (entity->priority_limit && set->priority > entity->priority_limit &&
	    !capable(CAP_SYS_NICE))
		err = -EPERM;
	else
		err = rtxg_host_set_task(entity, &params);
	rtxg_host_end(file);
	return err;
}

void rtxg_host_set_back(struct rtxg_file *file, const struct rtxg_host_set *before)
{
	const struct rtxg_task_params params = { .priority = before->priority,
						 .runtime_ns = before->runtime_ns,
						 .deadline_ns = before->deadline_ns,
						 .period_ns = before->period_ns };

	rtxg_host_begin();
	WARN_ON_ONCE(rtxg_host_set_task(smp_load_acquire(&file->entity), &params));
	rtxg_host_end(file);
}

static long host_set(struct rtxg_file *file, const struct rtxg_host_set __user *user)
{
	struct rtxg_host_set set, before;
	int err;

	err = rtxg_copy_in(&set, sizeof(set), sizeof(set), user);
	return err ?: rtxg_host_set(file, &set, &before);
}

/* ---- pools ---- */

int rtxg_host_read_pool(struct rtxg_host_pool *request, const void __user *user, bool remove)
{
	int err = rtxg_copy_in(request, sizeof(*request), sizeof(*request), user);

	if (err)
		return err;
	if (request->flags & ~(remove ? RTXG_HOST_F_REMOVE : 0u) ||
	    !rtxg_host_good_name(request->name, NULL) ||
	    !rtxg_all_zero(request->reserved, sizeof(request->reserved)))
		return -EINVAL;
	return 0;
}

/* Without a pool: the GPU with the fewest tasks. */
static int idlest_gpu(void)
{
	u32 tasks[RTXG_HOST_GPUS] = {};
	int best = -ENODEV;

	for (u32 i = 0; i < host.max_vgpus; i++)
		if (host.accounts[i].used)
			tasks[host.accounts[i].gpu] += READ_ONCE(host.accounts[i].tasks);
	for (u32 g = 0; g < RTXG_HOST_GPUS; g++)
		if (host.gpus[g].used && (best < 0 || tasks[g] < tasks[best]))
			best = g;
	return best;
}

static long host_advice(struct rtxg_host_pool __user *user)
{
	struct rtxg_host_pool request;
	int err;

	err = rtxg_copy_in(&request, sizeof(request), sizeof(request), user);
	if (err)
		return err;
	if (request.flags || strnlen(request.name, RTXG_HOST_NAME) == RTXG_HOST_NAME ||
	    !rtxg_all_zero(request.reserved, sizeof(request.reserved)))
		return -EINVAL;
	mutex_lock(&host.objects);
	err = request.name[0] ? rtxg_host_find_pool(request.name) : idlest_gpu();
	if (err >= 0 && request.name[0]) {
		u32 gpu;

		raw_spin_lock_irq(&host.lock);
		gpu = rtxg_core_device_advice(host.core, err);
		raw_spin_unlock_irq(&host.lock);
		err = gpu < RTXG_HOST_GPUS ? (int)gpu : -ENODEV;
	}
	if (err >= 0)
		memcpy(request.gpu, host.gpus[err].name, RTXG_HOST_NAME);
	/* GPU 0 is there for whoever names none, also before the first has come */
	else if (err == -ENODEV && !request.name[0])
		strscpy_pad(request.gpu, "0", RTXG_HOST_NAME);
	mutex_unlock(&host.objects);
	return err < 0 && request.name[0]
		       ? err
		       : rtxg_copy_out(user, &request, sizeof(request), request.size);
}

static int leave_pool(struct khost_task *entity)
{
	struct rtxg_event event = { .type = RTXG_EV_POOL_RELEASE,
				    .pool = entity->pool,
				    .task = entity->id };
	int err;

	lockdep_assert_held(&host.lock);
	if (entity->pool == RTXG_NONE)
		return -EPERM;
	err = step(&event);
	entity->pool = RTXG_NONE;
	entity->pool_held = false;
	run_looks();
	return err;
}

static long host_acquire(struct khost_task *entity, struct rtxg_host_pool __user *user)
{
	struct rtxg_event event = { .type = RTXG_EV_POOL_REQUEST, .task = entity->id };
	struct rtxg_waiter waiter = { .since_ns = ktime_get_mono_fast_ns() };
	struct rtxg_host_pool request;
	int err;

	err = rtxg_host_read_pool(&request, user, false);
	if (err)
		return err;
	mutex_lock(&host.objects);
	err = rtxg_host_find_pool(request.name);
	if (err >= 0) {
		event.pool = err;
		event.priority = clamp(MAX_RT_PRIO - 1 - current->prio, 1, 99);
		raw_spin_lock_irq(&host.lock);
		if (entity->pool != RTXG_NONE) {
			err = -EALREADY;
		} else if (entity->moving_to) {
			err = -EBUSY;
		} else {
			entity->pool = event.pool;
			err = step(&event);
			if (err)
				entity->pool = RTXG_NONE;
		}
		run_looks();
		raw_spin_unlock_irq(&host.lock);
	}
	mutex_unlock(&host.objects);
	if (err)
		return err;
	for (;;) {
		bool held;

		rtxg_waiters_add(&entity->pool_waiters, &waiter);
		set_current_state(TASK_INTERRUPTIBLE);
		raw_spin_lock_irq(&host.lock);
		held = entity->pool_held;
		/* released meanwhile by another thread of the task */
		if (entity->pool == RTXG_NONE)
			err = -ECANCELED;
		else if (!held && signal_pending(current)) {
			leave_pool(entity);
			err = -EINTR;
		}
		raw_spin_unlock_irq(&host.lock);
		if (held || err)
			break;
		schedule();
		__set_current_state(TASK_RUNNING);
		rtxg_waiters_remove(&entity->pool_waiters, &waiter);
	}
	__set_current_state(TASK_RUNNING);
	rtxg_waiters_remove(&entity->pool_waiters, &waiter);
	if (err)
		return err;
	mutex_lock(&host.objects);
	if (entity->pool_gpu < RTXG_HOST_GPUS)
		memcpy(request.gpu, host.gpus[entity->pool_gpu].name, RTXG_HOST_NAME);
	mutex_unlock(&host.objects);
	return rtxg_copy_out(user, &request, sizeof(request), request.size);
}

static long host_release(struct khost_task *entity, struct rtxg_host_pool __user *user)
{
	struct rtxg_host_pool request;
	int err;

	err = rtxg_host_read_pool(&request, user, false);
	if (err)
		return err;
	mutex_lock(&host.objects);
	err = rtxg_host_find_pool(request.name);
	if (err >= 0) {
		raw_spin_lock_irq(&host.lock);
		err = entity->pool == (u32)err ? leave_pool(entity) : -EPERM;
		raw_spin_unlock_irq(&host.lock);
		rtxg_waiters_wake(&entity->pool_waiters, UINT_MAX);
	}
	mutex_unlock(&host.objects);
	return err;
}

long rtxg_host_ioctl(struct rtxg_file *file, unsigned int command, unsigned long argument)
{
	struct khost_task *entity = smp_load_acquire(&file->entity);
	void __user *user = (void __user *)argument;

	switch (command) {
	case RTXG_IOC_HOST_OPEN:
		return host_open(file, user);
	case RTXG_IOC_HOST_ADVICE:
		return host_advice(user);
	}
	/* the rest is for tasks */
	switch (command) {
	case RTXG_IOC_HOST_RING:
		return entity ? host_ring(entity) : -EBADFD;
	case RTXG_IOC_HOST_WAIT:
		return entity ? host_wait(entity, user) : -EBADFD;
	case RTXG_IOC_HOST_WAKE:
		return entity ? host_wake(entity, argument) : -EBADFD;
	case RTXG_IOC_HOST_SET:
		return host_set(file, user);
	case RTXG_IOC_HOST_ACQUIRE:
		return entity ? host_acquire(entity, user) : -EBADFD;
	case RTXG_IOC_HOST_RELEASE:
		return entity ? host_release(entity, user) : -EBADFD;
	}
	return -ENOTTY;
}

int rtxg_host_init(void)
{
	struct rtxg_limits limits = { .gpus = RTXG_HOST_GPUS, .pools = RTXG_HOST_POOLS };
	size_t size;
	u32 p;

	if (max_tasks < 1 || max_tasks > 4096 || max_vgpus < 1 || max_vgpus > 1024) {
		pr_err("rtxg: max_tasks=%u must be 1..4096, max_vgpus=%u 1..1024\n", max_tasks,
		       max_vgpus);
		return -EINVAL;
	}
	for (p = 0; p < RTXG_GPU_POLICIES && strcmp(policy, rtxg_gpu_policy_name(p)); p++)
		;
	if (p == RTXG_GPU_POLICIES) {
		pr_err("rtxg: policy=%s is none of null, fifo, credit, band, cbs\n", policy);
		return -EINVAL;
	}
	limits.tasks = max_tasks;
	limits.vgpus = max_vgpus;
	size = rtxg_core_size(&limits);
	host.memory = size ? kvzalloc(size, GFP_KERNEL) : NULL;
	host.entities = kvcalloc(max_tasks, sizeof(*host.entities), GFP_KERNEL);
	host.accounts = kvcalloc(max_vgpus, sizeof(*host.accounts), GFP_KERNEL);
	if (!host.memory || !host.entities || !host.accounts) {
		kvfree(host.memory);
		kvfree(host.entities);
		kvfree(host.accounts);
		return -ENOMEM;
	}
	host.core = rtxg_core_init(host.memory, size, &limits, ktime_get_ns());
	host.gpu_default = (struct rtxg_gpu_params){ .policy = p };
	host.max_tasks = max_tasks;
	host.max_vgpus = max_vgpus;
	host.generation = get_random_u64() | 1;
	raw_spin_lock_init(&host.lock);
	mutex_init(&host.objects);
	init_waitqueue_head(&host.front_wait);
	INIT_LIST_HEAD(&host.looks);
	rtxg_hrtimer_setup(&host.timer, timer_due, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_HARD);
	return 0;
}

void rtxg_host_exit(void)
{
	hrtimer_cancel(&host.timer);
	kvfree(host.memory);
	kvfree(host.entities);
	kvfree(host.accounts);
}
