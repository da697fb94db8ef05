// SPDX-License-Identifier: MIT
/*
 * objects.c - GPUs, vGPUs and pools: names and lifetimes. What a share may be is the core's to say
 * (admission); this only carries the question there and the answer back.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "backend.h"
#include "binding.h"
#include "host.h"
#include "memory.h"
#include "objects.h"
#include "process.h"
#include "user.h"

/* The core counts shares in parts per million and says so; people type percent. */
static bool explain_share(char *why, size_t size, const char *what,
			  const struct rtxg_refusal *refusal)
{
	const char *unit = strstr(refusal->what, " (ppm)");

	if (!unit)
		return false;
	snprintf(why, size, "%s: %.*s%s (%.10g%%; the limit is %.10g%%)", what,
		 (int)(unit - refusal->what), refusal->what, unit + strlen(" (ppm)"),
		 (double)refusal->value / 10000, (double)refusal->limit / 10000);
	return true;
}

/* A refusal of the core as a sentence. */
void objects_explain(char *why, size_t size, const char *what, const struct rtxg_refusal *refusal,
		     int error)
{
	if (refusal && refusal->what && explain_share(why, size, what, refusal))
		return;
	if (refusal && refusal->what)
		snprintf(why, size, "%s: %s (%llu; the limit is %llu)", what, refusal->what,
			 (unsigned long long)refusal->value, (unsigned long long)refusal->limit);
	else
		snprintf(why, size, "%s: %s", what, strerrordesc_np(-error));
}

/* What a host answered, in words if it was no. */
static int answered(struct daemon *d, int ret, const char *what, char *why, size_t size,
		    struct rtxg_refusal *refusal)
{
	if (ret) {
		if (refusal)
			*refusal = d->refusal;
		objects_explain(why, size, what, &d->refusal, ret);
	}
	return ret;
}

/* --- accounts: a vGPU on a GPU ---------------------------------------------------------------- */

/* Only in our tables. */
struct account *objects_account_adopt(struct daemon *d, struct vgpu *vgpu, struct gpu *gpu)
{
	uint32_t id;

	for (id = 0; id < ACCOUNTS_MAX && d->accounts[id].used; id++)
		;
	if (id == ACCOUNTS_MAX)
		return NULL;
	d->accounts[id] = (struct account){ .used = true,
					    .id = id,
					    .permit = { .vgpu = id },
					    .vgpu = vgpu,
					    .gpu = gpu,
					    .since_ns = rtxg_now_ns() };
	vgpu->on[gpu->id] = &d->accounts[id];
	return &d->accounts[id];
}

void objects_account_forget(struct daemon *d, struct account *account)
{
	if (account->user)
		account->user->accounts--;
	account->vgpu->on[account->gpu->id] = NULL;
	free(account->slots);
	memset(account, 0, sizeof(*account));
}

/* Has an ordinary user no quota left? It counts what the user's tasks were the first in. */
static bool account_refused(const struct daemon *d, const struct user *user)
{
	uint32_t used = 0;

	if (!user || user->trusted)
		return false;
	for (uint32_t id = 0; id < ACCOUNTS_MAX; id++)
		used += d->accounts[id].used;
	return !user_may(user->accounts, USER_ACCOUNTS, used, ACCOUNTS_MAX, RESERVE_ACCOUNTS);
}

struct account *objects_account_get(struct daemon *d, struct vgpu *vgpu, struct gpu *gpu,
				    struct user *user, char *why, size_t size, int *error,
				    struct rtxg_refusal *refusal)
{
	struct account *account = vgpu->on[gpu->id];
	char what[2 * RTXG_NAME_MAX + 40];

	*error = 0;
	if (account)
		return account;
	if (vgpu->gpu[0] && strcmp(vgpu->gpu, gpu->name)) {
		snprintf(why, size, "vGPU %s is for GPU %s only, not for %s", vgpu->name, vgpu->gpu,
			 gpu->name);
		*error = -EACCES;
		return NULL;
	}
	if (account_refused(d, user)) {
		snprintf(why, size,
			 "vGPU %s on GPU %s would be one too many: of %u vGPUs on GPUs in all, the "
			 "tasks of one user are the first in %u at most, and in no more than are "
			 "left; an administrator can run a program there first",
			 vgpu->name, gpu->name, ACCOUNTS_MAX, USER_ACCOUNTS);
		*error = -ENOSPC;
		return NULL;
	}
	account = objects_account_adopt(d, vgpu, gpu);
	if (!account) {
		snprintf(why, size, "there are %u vGPUs on GPUs already, which is the most",
			 ACCOUNTS_MAX);
		*error = -ENOSPC;
		return NULL;
	}
	snprintf(what, sizeof(what), "vGPU %s on GPU %s", vgpu->name, gpu->name);
	*error = answered(d, d->host->account(d, account, VERB_ADD, &vgpu->params), what, why, size,
			  refusal);
	if (*error) {
		objects_account_forget(d, account);
		return NULL;
	}
	if (user && !user->trusted) {
		account->user = user;
		user->accounts++;
	}
	return account;
}

int objects_account_put(struct daemon *d, struct account *account)
{
	int ret = d->host->account(d, account, VERB_REMOVE, NULL);

	if (!ret)
		objects_account_forget(d, account);
	return ret;
}

/* --- GPUs ------------------------------------------------------------------------------------- */

/* The parameters of a GPU that no file configured. */
void objects_gpu_defaults(struct daemon *d)
{
	d->gpu_default = rtxg_core_gpu_defaults();
}

struct gpu *objects_gpu_find(struct daemon *d, const char *name)
{
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		if (d->gpus[i].used && !strcmp(d->gpus[i].name, name))
			return &d->gpus[i];
	return NULL;
}

static bool gpu_needed(struct daemon *d, const struct gpu *gpu)
{
	if (gpu->origin != ORIGIN_TASK || gpu->tasks)
		return true;
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && !strcmp(d->vgpus[i].gpu, gpu->name))
			return true;
	for (uint32_t i = 0; i < POOLS_MAX; i++)
		if (d->pools[i].used && d->pools[i].mask >> gpu->id & 1)
			return true;
	return false;
}

/* The name counts no more toward its user's quota. */
static void gpu_disown(struct gpu *gpu)
{
	if (gpu->user)
		gpu->user->gpus--;
	gpu->user = NULL;
}

static bool gpu_remove(struct daemon *d, struct gpu *gpu)
{
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && d->vgpus[i].on[gpu->id] &&
		    objects_account_put(d, d->vgpus[i].on[gpu->id]))
			return false;
	if (d->host->gpu(d, gpu, VERB_REMOVE, NULL))
		return false;
	gpu_disown(gpu);
	gpu->used = false;
	return true;
}

/*
 * A place for a GPU of that user's tasks. With all places taken, a GPU that only a task once named
 * and no task uses gives way: the one unused for longest. An ordinary user has a quota of names,
 * and only names that are the user's alone give way, for what is counted of others stays.
 */
static struct gpu *gpu_place(struct daemon *d, const struct user *user)
{
	bool bound = user && !user->trusted;
	struct gpu *oldest = NULL, *place = NULL;
	uint32_t used = 0;

	for (uint32_t i = 0; i < GPUS_MAX; i++) {
		struct gpu *gpu = &d->gpus[i];

		if (!gpu->used) {
			gpu->id = i;
			place = place ? place : gpu;
			continue;
		}
		used++;
		if (!gpu_needed(d, gpu) && (!bound || (gpu->user == user && !gpu->shared)) &&
		    (!oldest || gpu->last_used_ns < oldest->last_used_ns))
			oldest = gpu;
	}
	if (place && (!bound || user_may(user->gpus, USER_GPUS, used, d->gpus_max, RESERVE_GPUS)))
		return place;
	return oldest && gpu_remove(d, oldest) ? oldest : NULL;
}

static bool is_place(const char *name)
{
	unsigned int domain, bus, slot, function;
	int end = 0;

	return sscanf(name, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &end) == 4 &&
	       !name[end];
}

bool objects_gpu_on_bus(const char *name)
{
	char path[RTXG_NAME_MAX + 32];
	unsigned int class = 0;
	FILE *file;

	if (!is_place(name))
		return false;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/class", name);
	file = fopen(path, "re");
	if (file && fscanf(file, "%x", &class) != 1)
		class = 0;
	if (file)
		fclose(file);
	/* Base classes: display, processor, accelerator, co-processor. */
	return class >> 16 == 0x03 || class >> 16 == 0x0b || class >> 16 == 0x12 ||
	       class >> 16 == 0x40;
}

/* A name that is a place on the PCI bus is of a GPU only if there is a device. */
static bool gpu_exists(const char *name)
{
	char path[RTXG_NAME_MAX + 32];

	if (!is_place(name))
		return true;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", name);
	return !access(path, F_OK);
}

static void gpu_known(struct daemon *d, struct gpu *gpu, enum origin origin, struct user *user)
{
	if (origin == ORIGIN_TASK) {
		gpu->shared |= user != gpu->user;
	} else if (gpu->origin == ORIGIN_TASK) {
		gpu_disown(gpu);
		gpu->origin = origin;
		d->host->changed(d, gpu, NULL);
	}
}

/* The GPU of that name; a name not seen before adds one. */
struct gpu *objects_gpu_get(struct daemon *d, const char *name, enum origin origin,
			    struct user *user, char *why, size_t size, int *error)
{
	struct gpu *gpu = objects_gpu_find(d, name);
	char what[RTXG_NAME_MAX + 40];
	uint32_t id;

	*error = 0;
	if (gpu) {
		gpu_known(d, gpu, origin, user);
		return gpu;
	}
	if (origin == ORIGIN_TASK && !gpu_exists(name)) {
		snprintf(why, size, "there is no GPU %s: /sys/bus/pci/devices has no such device",
			 name);
		*error = -ENODEV;
		return NULL;
	}
	gpu = gpu_place(d, user);
	if (!gpu && user && !user->trusted) {
		snprintf(why, size,
			 "GPU %s would be one too many: of %u in all, the tasks of one user name "
			 "at most %u, and no more than are left; an administrator can name more "
			 "([GPU NAME] in the configuration)",
			 name, d->gpus_max, USER_GPUS);
		*error = -ENOSPC;
		return NULL;
	}
	if (!gpu) {
		snprintf(why, size,
			 "GPU %s would be one too many: %u are in use, which is the most", name,
			 d->gpus_max);
		*error = -ENOSPC;
		return NULL;
	}
	id = gpu->id;
	snprintf(what, sizeof(what), "GPU %s", name);
	memset(gpu, 0, sizeof(*gpu));
	gpu->id = id;
	strcpy(gpu->name, name);
	gpu->params = d->gpu_default;
	gpu->origin = origin;
	gpu->last_used_ns = rtxg_now_ns();
	*error = answered(d, d->host->gpu(d, gpu, VERB_ADD, &gpu->params), what, why, size, NULL);
	if (*error)
		return NULL;
	gpu->used = true;
	if (origin == ORIGIN_TASK && user) {
		gpu->user = user;
		user->gpus++;
	}
	/*
	 * What is reserved everywhere is reserved here from the start, and counts for no user who
	 * names the GPU first; where that is refused, opening a task says so.
	 */
	for (uint32_t i = 0; i < VGPUS_MAX; i++) {
		struct vgpu *vgpu = &d->vgpus[i];
		char ignored[256];
		int ret;

		if (vgpu->used && vgpu->params.min_ppm &&
		    (!vgpu->gpu[0] || !strcmp(vgpu->gpu, name)))
			objects_account_get(d, vgpu, gpu, NULL, ignored, sizeof(ignored), &ret,
					    NULL);
	}
	return gpu;
}

int objects_gpu_change(struct daemon *d, struct gpu *gpu, const struct rtxg_gpu_params *params,
		       char *why, size_t size, struct rtxg_refusal *refusal)
{
	char what[RTXG_NAME_MAX + 40];
	int ret;

	snprintf(what, sizeof(what), "GPU %s", gpu->name);
	ret = answered(d, d->host->gpu(d, gpu, VERB_SET, params), what, why, size, refusal);
	if (!ret)
		gpu->params = *params;
	return ret;
}

/* --- vGPUs ------------------------------------------------------------------------------------ */

struct vgpu *objects_vgpu_find(struct daemon *d, const char *name)
{
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && !strcmp(d->vgpus[i].name, name))
			return &d->vgpus[i];
	return NULL;
}

/* Whether it gets, beyond its reservation, what others leave. */
bool objects_work_conserving(const struct vgpu *vgpu, const struct gpu *gpu)
{
	return rtxg_gpu_policy_conserving(gpu->params.policy, &vgpu->params);
}

int objects_vgpu_create(struct daemon *d, const struct vgpu *wanted, struct vgpu **result,
			char *why, size_t size, struct rtxg_refusal *refusal)
{
	struct vgpu *vgpu = NULL;
	int ret = 0;

	if (objects_vgpu_find(d, wanted->name)) {
		snprintf(why, size, "vGPU %s exists already", wanted->name);
		return -EEXIST;
	}
	for (uint32_t i = 0; i < VGPUS_MAX && !vgpu; i++)
		if (!d->vgpus[i].used)
			vgpu = &d->vgpus[i];
	if (!vgpu) {
		snprintf(why, size,
			 "vGPU %s would be one too many: there are %u, which is the most",
			 wanted->name, VGPUS_MAX);
		return -ENOSPC;
	}
	if (wanted->gpu[0] &&
	    !objects_gpu_get(d, wanted->gpu, ORIGIN_RUNTIME, NULL, why, size, &ret))
		return ret;
	ret = backend_admit(d, NULL, wanted, why, size, refusal);
	if (ret)
		return ret;
	*vgpu = *wanted;
	vgpu->used = true;
	vgpu->created = ++d->created;
	/*
	 * Admission now rather than when the first task comes: here a person reads the
	 * answer. A vGPU that reserves nothing is only checked, on one GPU.
	 */
	for (uint32_t i = 0; i < GPUS_MAX && !ret; i++) {
		struct gpu *gpu = &d->gpus[i];

		if (!gpu->used || (vgpu->gpu[0] && strcmp(vgpu->gpu, gpu->name)))
			continue;
		objects_account_get(d, vgpu, gpu, NULL, why, size, &ret, refusal);
		if (!vgpu->params.min_ppm)
			break;
	}
	if (ret) {
		for (uint32_t i = 0; i < GPUS_MAX; i++)
			if (vgpu->on[i])
				objects_account_put(d, vgpu->on[i]);
		vgpu->used = false;
		return ret;
	}
	*result = vgpu;
	backend_vgpu_changed(d, vgpu);
	memory_changed(d);
	return 0;
}

int objects_vgpu_change(struct daemon *d, struct vgpu *vgpu, const struct vgpu *wanted, char *why,
			size_t size, struct rtxg_refusal *refusal)
{
	const struct rtxg_vgpu_params *params = &wanted->params;
	struct rtxg_vgpu_params before = vgpu->params;
	char what[2 * RTXG_NAME_MAX + 40];
	bool added[GPUS_MAX] = { false };
	uint32_t done = 0;
	int ret = backend_admit(d, vgpu, wanted, why, size, refusal);

	for (uint32_t i = 0; i < GPUS_MAX && !ret; i++) {
		if (!d->gpus[i].used || (vgpu->gpu[0] && strcmp(vgpu->gpu, d->gpus[i].name)))
			continue;
		if (vgpu->on[i]) {
			snprintf(what, sizeof(what), "vGPU %s on GPU %s", vgpu->name,
				 d->gpus[i].name);
			ret = answered(d, d->host->account(d, vgpu->on[i], VERB_SET, params), what,
				       why, size, refusal);
		} else if (params->min_ppm) {
			vgpu->params = *params;
			added[i] = objects_account_get(d, vgpu, &d->gpus[i], NULL, why, size, &ret,
						       refusal) != NULL;
			vgpu->params = before;
		}
		done = ret ? i : i + 1;
	}
	if (!ret) {
		vgpu->params = *params;
		vgpu->latency_ns = wanted->latency_ns;
		vgpu->quantum_ns = wanted->quantum_ns;
		vgpu->memory_bytes = wanted->memory_bytes;
		vgpu->task_priority = wanted->task_priority;
		d->host->changed(d, NULL, vgpu);
		backend_vgpu_changed(d, vgpu);
		memory_changed(d);
		return 0;
	}
	/*
	 * All or nothing: what was accepted elsewhere is taken back, which is always admitted since
	 * it was in force a moment ago.
	 */
	for (uint32_t i = 0; i < done; i++) {
		if (added[i])
			objects_account_put(d, vgpu->on[i]);
		else if (vgpu->on[i])
			d->host->account(d, vgpu->on[i], VERB_SET, &before);
	}
	return ret;
}

/* By tasks that are in it, or on their way to it. */
static bool in_use(const struct daemon *d, const struct vgpu *vgpu)
{
	if (vgpu->tasks)
		return true;
	for (uint32_t i = 0; i < d->tasks_top; i++)
		if (d->tasks[i].used && d->tasks[i].moving_to == vgpu)
			return true;
	return false;
}

int objects_vgpu_retarget(struct daemon *d, struct vgpu *vgpu, const char *gpu, char *why,
			  size_t size)
{
	int ret = 0;

	if (in_use(d, vgpu) || backend_populates(d, vgpu)) {
		snprintf(why, size,
			 "vGPU %s stays on GPU %s while programs are in it; end or move them (rtxg "
			 "ps), then GPU=%s is possible",
			 vgpu->name, vgpu->gpu[0] ? vgpu->gpu : "all", gpu[0] ? gpu : "all");
		return -EBUSY;
	}
	if (gpu[0] && !objects_gpu_get(d, gpu, ORIGIN_CONFIG, NULL, why, size, &ret))
		return ret;
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		if (vgpu->on[i] && objects_account_put(d, vgpu->on[i])) {
			snprintf(why, size, "a program has just entered vGPU %s", vgpu->name);
			return -EBUSY;
		}
	/* The backends know it by its name and where it belongs: the change tells them again. */
	backend_vgpu_gone(d, vgpu);
	strcpy(vgpu->gpu, gpu);
	return 0;
}

int objects_vgpu_remove(struct daemon *d, struct vgpu *vgpu)
{
	/* A task on its way here stays where it is. */
	if (in_use(d, vgpu))
		return -EBUSY;
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		if (vgpu->on[i] && objects_account_put(d, vgpu->on[i]))
			return -EBUSY;
	objects_vgpu_forget(d, vgpu);
	return 0;
}

/* The host has nothing of it any more. */
void objects_vgpu_forget(struct daemon *d, struct vgpu *vgpu)
{
	backend_vgpu_gone(d, vgpu);
	binding_forget(d, vgpu);
	if (vgpu->origin == ORIGIN_TRANSIENT)
		objects_vgpu_unfollow(vgpu);
	memset(vgpu, 0, sizeof(*vgpu));
	memory_changed(d);
}

/*
 * A transient vGPU goes when its creator has ended and no task is in it, nor a program that a
 * backend governs.
 */
void objects_vgpu_collect(struct daemon *d, struct vgpu *vgpu)
{
	if (vgpu->used && vgpu->origin == ORIGIN_TRANSIENT && vgpu->creator < 0 && !vgpu->tasks &&
	    !vgpu->awaited && !vgpu->entered && !backend_populates(d, vgpu))
		objects_vgpu_remove(d, vgpu);
}

void objects_vgpu_unfollow(struct vgpu *vgpu)
{
	watch_off(vgpu->daemon, &vgpu->creator_watch);
	if (vgpu->creator >= 0)
		close(vgpu->creator);
	vgpu->creator = -1;
}

/* The process with which a transient vGPU goes has ended. */
static void creator_ended(struct daemon *d, struct watch *watch, uint32_t events)
{
	struct vgpu *vgpu = watch->data;

	objects_vgpu_unfollow(vgpu);
	objects_vgpu_collect(d, vgpu);
}

int objects_vgpu_follow(struct daemon *d, struct vgpu *vgpu, int pidfd, pid_t pid)
{
	int ret;

	if (pidfd < 0)
		return -EMFILE;
	vgpu->creator_watch = (struct watch){ .ready = creator_ended, .data = vgpu };
	ret = watch_on(d, &vgpu->creator_watch, pidfd, EPOLLIN);
	if (ret < 0) {
		close(pidfd);
		return ret;
	}
	vgpu->creator = pidfd;
	vgpu->creator_pid = pid;
	vgpu->creator_began = process_began(pid, pid);
	return 0;
}

/* --- pools ------------------------------------------------------------------------------------ */

struct pool *objects_pool_find(struct daemon *d, const char *name)
{
	for (uint32_t i = 0; i < POOLS_MAX; i++)
		if (d->pools[i].used && !strcmp(d->pools[i].name, name))
			return &d->pools[i];
	return NULL;
}

int objects_pool_create(struct daemon *d, const char *name, uint64_t mask, char *why, size_t size)
{
	char what[RTXG_NAME_MAX + 40];
	uint32_t id;
	int ret;

	if (objects_pool_find(d, name)) {
		snprintf(why, size, "pool %s exists already", name);
		return -EEXIST;
	}
	for (id = 0; id < POOLS_MAX && d->pools[id].used; id++)
		;
	if (id == POOLS_MAX) {
		snprintf(why, size,
			 "pool %s would be one too many: there are %u, which is the most", name,
			 POOLS_MAX);
		return -ENOSPC;
	}
	snprintf(what, sizeof(what), "pool %s", name);
	d->pools[id] = (struct pool){ .id = id, .mask = mask };
	strcpy(d->pools[id].name, name);
	ret = answered(d, d->host->pool(d, &d->pools[id], VERB_ADD), what, why, size, NULL);
	d->pools[id].used = !ret;
	return ret;
}

int objects_pool_remove(struct daemon *d, struct pool *pool)
{
	int ret = d->host->pool(d, pool, VERB_REMOVE);

	if (!ret)
		pool->used = false;
	return ret;
}
