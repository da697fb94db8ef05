// SPDX-License-Identifier: MIT
/*
 * module_calls.c - what is asked of rtxg.ko, a function a call. See module_calls.h. May not:
 * remember what the module answered, but for its numbers.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "module_calls.h"
#include "names.h"

_Static_assert(RTXG_HOST_USERS == USERS_MAX, "as many users as the module takes");
_Static_assert(RTXG_HOST_NAME == RTXG_NAME_MAX + 1, "names as long as the module's");

#define NAMES_FIRST_US 100000ull
#define NAMES_LAST_US  60000000ull

struct module_link module_link = { .fd = -1 };

/* Names of users that were not known when the module was told. */
static struct {
	bool unknown;
	sd_event_source *source;
	uint64_t us; /* until they are looked at again */
} names = { .us = NAMES_FIRST_US };

/*
 * A vGPU's cookie: who made it, whether it is on that GPU only, and the process with which it goes.
 * 0: not made by us.
 */
#define COOKIE_OURS	    1u
#define COOKIE_BOUND	    2u
#define COOKIE_ORIGIN_SHIFT 4
#define COOKIE_PID_SHIFT    32

static uint64_t cookie_of(enum origin origin, bool bound, pid_t pid)
{
	return COOKIE_OURS | (bound ? COOKIE_BOUND : 0) | (uint64_t)origin << COOKIE_ORIGIN_SHIFT |
	       (uint64_t)pid << COOKIE_PID_SHIFT;
}

struct module_cookie module_cookie(uint64_t cookie, enum origin otherwise)
{
	uint64_t origin = cookie >> COOKIE_ORIGIN_SHIFT & 7;
	bool ours = cookie & COOKIE_OURS;

	return (struct module_cookie){
		.ours = ours,
		.bound = cookie & COOKIE_BOUND,
		.origin = ours && origin <= ORIGIN_TASK ? (enum origin)origin : otherwise,
		.pid = (pid_t)(cookie >> COOKIE_PID_SHIFT),
	};
}

static int call(struct daemon *d, unsigned long command, void *argument)
{
	struct rtxg_host_refusal refusal = { .size = sizeof(refusal) };
	static char what[128];
	int ret = ioctl(module_link.fd, command, argument) < 0 ? -errno : 0;

	d->refusal = (struct rtxg_refusal){ 0 };
	if (ret && !ioctl(module_link.fd, RTXG_IOC_HOST_REFUSAL, &refusal) && refusal.what[0]) {
		snprintf(what, sizeof(what), "%s", refusal.what);
		d->refusal = (struct rtxg_refusal){ .what = what,
						    .value = refusal.value,
						    .limit = refusal.limit };
	}
	return ret;
}

int module_ask_info(struct rtxg_host_info *info)
{
	*info = (struct rtxg_host_info){ .size = sizeof(*info) };
	return ioctl(module_link.fd, RTXG_IOC_HOST_INFO, info) < 0 ? -errno : 0;
}

static struct rtxg_host_gpu gpu_request(const struct rtxg_gpu_params *p)
{
	return (struct rtxg_host_gpu){
		.policy = p->policy,
		.overrun = p->overrun,
		.period_ns = p->period_ns,
		.window_ns = p->window_ns,
		.band_wait_ns = p->band_wait_ns,
		.think_ns = p->think_ns,
		.revoke_timeout_ns = p->revoke_timeout_ns,
		.switch_ppm = p->switch_ppm,
		.ahead_ns = p->ahead_ns,
		.early_ns = p->early_ns,
	};
}

struct rtxg_gpu_params module_gpu_params(const struct rtxg_host_gpu *r)
{
	return (struct rtxg_gpu_params){
		.policy = r->policy,
		.overrun = r->overrun,
		.period_ns = r->period_ns,
		.window_ns = r->window_ns,
		.band_wait_ns = r->band_wait_ns,
		.think_ns = r->think_ns,
		.revoke_timeout_ns = r->revoke_timeout_ns,
		.switch_ppm = r->switch_ppm,
		.ahead_ns = r->ahead_ns,
		.early_ns = r->early_ns,
	};
}

int module_ask_gpu(struct daemon *d, struct gpu *gpu, enum verb verb,
		   const struct rtxg_gpu_params *params)
{
	struct rtxg_host_gpu request = { 0 };
	int ret;

	if (params)
		request = gpu_request(params);
	request.size = sizeof(request);
	request.flags = verb == VERB_REMOVE ? RTXG_HOST_F_REMOVE : 0;
	request.cookie = cookie_of(gpu->origin, false, 0);
	strcpy(request.name, gpu->name);
	ret = call(d, RTXG_IOC_HOST_GPU, &request);
	if (!ret)
		module_link.number[gpu->id] = request.number;
	return ret;
}

/* As numbers: the kernel knows no names. A name without a user lets no user in. */
static void put_users(struct rtxg_host_vgpu *request, const struct daemon *d,
		      const struct vgpu *vgpu)
{
	request->group =
		vgpu->users_count && d->group != (gid_t)-1 ? d->group : RTXG_HOST_EVERYBODY;
	request->users_count = vgpu->users_count;
	for (uint32_t i = 0; i < vgpu->users_count; i++) {
		uid_t uid;

		request->users[i] = names_user(vgpu->users[i], &uid) ? uid : UINT32_MAX;
		if (request->users[i] == UINT32_MAX)
			names.unknown = true;
	}
}

/*
 * A thread looks names up. What was not known when the module was told of a vGPU is known later: it
 * is told again, until no name is left.
 */
static int on_names(sd_event_source *s, uint64_t usec, void *data)
{
	struct daemon *d = data;

	names.unknown = false;
	names.us *= 2;
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && d->vgpus[i].users_count)
			module_ask_again(d, NULL, &d->vgpus[i]);
	if (!names.unknown)
		names.us = NAMES_FIRST_US;
	return 0;
}

static void look_for_names(struct daemon *d)
{
	if (names.us > NAMES_LAST_US)
		names.us = NAMES_LAST_US;
	if (!names.source && sd_event_add_time_relative(d->event, &names.source, CLOCK_MONOTONIC,
							names.us, 0, on_names, d) < 0)
		return;
	sd_event_source_set_time_relative(names.source, names.us);
	sd_event_source_set_enabled(names.source, SD_EVENT_ONESHOT);
}

int module_ask_account(struct daemon *d, struct account *account, enum verb verb,
		       const struct rtxg_vgpu_params *params)
{
	const struct vgpu *vgpu = account->vgpu;
	struct rtxg_host_info info;
	struct rtxg_host_vgpu request = { .size = sizeof(request),
					  .flags = verb == VERB_REMOVE ? RTXG_HOST_F_REMOVE : 0 };
	int ret;

	strcpy(request.name, vgpu->name);
	strcpy(request.gpu, account->gpu->name);
	if (params) {
		request.min_ppm = params->min_ppm;
		request.max_ppm = params->max_ppm;
		request.weight = params->weight;
		request.priority = params->priority;
		request.period_ns = params->period_ns;
		request.policy = params->policy;
		request.task_priority = vgpu->task_priority;
		put_users(&request, d, vgpu);
		if (names.unknown)
			look_for_names(d);
		request.cookie = cookie_of(vgpu->origin, vgpu->gpu[0],
					   vgpu->creator < 0 ? 0 : vgpu->creator_pid);
	}
	ret = call(d, RTXG_IOC_HOST_VGPU, &request);
	if (ret == -ENOSPC && !d->refusal.what && !module_ask_info(&info))
		d->refusal =
			(struct rtxg_refusal){ .what = "the kernel module has no room for another "
						       "vGPU on a GPU (its parameter max_vgpus)",
					       .value = info.max_vgpus + 1ull,
					       .limit = info.max_vgpus };
	/* What is to go is gone already, made and removed by another program. */
	return verb == VERB_REMOVE && ret == -ENOENT ? 0 : ret;
}

int module_ask_pool(struct daemon *d, struct pool *pool, enum verb verb)
{
	struct rtxg_host_pool request = { .size = sizeof(request),
					  .flags = verb == VERB_REMOVE ? RTXG_HOST_F_REMOVE : 0 };

	strcpy(request.name, pool->name);
	for (uint32_t g = 0; verb == VERB_ADD && g < GPUS_MAX; g++)
		if (pool->mask >> g & 1)
			request.mask |= 1ull << module_link.number[g];
	return call(d, RTXG_IOC_HOST_POOL, &request);
}

int module_ask_task(struct daemon *d, const struct task *task, uint32_t flags,
		    const struct rtxg_task_params *params, const struct vgpu *to)
{
	struct rtxg_host_change request = {
		.size = sizeof(request),
		.flags = flags,
		.number = task->id,
		.serial = module_link.serials[task->id],
		.priority = params->priority,
		.runtime_ns = params->runtime_ns,
		.deadline_ns = params->deadline_ns,
		.period_ns = params->period_ns,
	};

	int ret;

	if (to)
		strcpy(request.vgpu, to->name);
	ret = call(d, RTXG_IOC_HOST_TASK, &request);
	/* A module that does not know the flag takes every priority for one that was given. */
	if (ret == -EINVAL && !d->refusal.what && flags & RTXG_HOST_F_GIVEN) {
		request.flags &= ~RTXG_HOST_F_GIVEN;
		ret = call(d, RTXG_IOC_HOST_TASK, &request);
	}
	return ret;
}

void module_ask_again(struct daemon *d, struct gpu *gpu, struct vgpu *vgpu)
{
	if (gpu)
		module_ask_gpu(d, gpu, VERB_SET, &gpu->params);
	for (uint32_t g = 0; vgpu && g < GPUS_MAX; g++)
		if (vgpu->on[g])
			module_ask_account(d, vgpu->on[g], VERB_SET, &vgpu->params);
}

int module_ask_advice(char gpu[RTXG_HOST_NAME])
{
	struct rtxg_host_pool wanted = { .size = sizeof(wanted) };

	if (ioctl(module_link.fd, RTXG_IOC_HOST_ADVICE, &wanted) < 0)
		return -errno;
	strcpy(gpu, wanted.gpu);
	return 0;
}

int module_ask_front(struct daemon *d)
{
	struct rtxg_host_front request = { .size = sizeof(request),
					   .tasks_per_user = d->tasks_per_user };

	request.gpu = gpu_request(&d->gpu_default);
	return call(d, RTXG_IOC_HOST_FRONT, &request);
}
