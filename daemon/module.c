// SPDX-License-Identifier: MIT
/*
 * module.c - the front of rtxg.ko: the core is in the kernel, programs open their tasks there, and
 * this is where people and their configuration speak to it. Objects are the module's; our tables
 * are a picture of them, drawn again at each request and each sample. So nothing is lost when we
 * end: the next front finds what is there. May not decide anything, and keeps nothing that the
 * module does not know, but for the names of files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "module.h"
#include "module_calls.h"
#include "module_picture.h"
#include "objects.h"

/* --- as a host among hosts -------------------------------------------------------------------- */

static int module_account(struct daemon *d, struct account *account, enum verb verb,
			  const struct rtxg_vgpu_params *params)
{
	int ret = module_ask_account(d, account, verb, params);

	if (verb == VERB_ADD && !ret)
		module_picture_forget(account);
	return ret;
}

static int change(struct daemon *d, struct task *task, uint32_t flags,
		  const struct rtxg_task_params *params, const struct vgpu *to)
{
	int ret = module_ask_task(d, task, flags, params, to);
	struct rtxg_refusal refusal = d->refusal;

	module_picture_draw(d, 0);
	d->refusal = refusal;
	return ret;
}

static int module_task_set(struct daemon *d, struct task *task,
			   const struct rtxg_task_params *params, bool given)
{
	return change(d, task, RTXG_HOST_F_PARAMS | (given ? RTXG_HOST_F_GIVEN : 0), params, NULL);
}

static int module_task_move(struct daemon *d, struct task *task, struct vgpu *to)
{
	return change(d, task, RTXG_HOST_F_MOVE, &task->permit.params, to);
}

static void module_configured(struct daemon *d)
{
	struct rtxg_host_info info;

	if (module_ask_front(d) && d->refusal.what)
		fprintf(stderr, "rtxgd: [GPU *] is not accepted by the kernel module: %s\n",
			d->refusal.what);
	if (!module_ask_info(&info))
		d->tasks_per_user = info.tasks_per_user;
}

static void module_look(struct daemon *d)
{
	module_picture_draw(d, 0);
}

static void module_count(struct daemon *d)
{
	module_picture_draw(d, RTXG_HOST_F_USAGE);
}

static void module_account_view(struct daemon *d, const struct account *account, uint32_t engine,
				uint64_t now, struct rtxg_account_view *view)
{
	module_picture_account(account, engine, view);
}

static void module_lane_view(struct daemon *d, const struct task *task, uint32_t engine,
			     struct lane_view *view)
{
	module_picture_lane(task, engine, view);
}

static struct gpu *module_advice(struct daemon *d, const struct pool *pool)
{
	char gpu[RTXG_HOST_NAME];

	if (pool)
		return objects_gpu_find(d, module_picture_advice(pool));
	return module_ask_advice(gpu) ? NULL : objects_gpu_find(d, gpu);
}

static const char *module_check(struct daemon *d)
{
	return NULL;
}

static const struct host host_module = {
	.name = "module",
	.gpu = module_ask_gpu,
	.account = module_account,
	.pool = module_ask_pool,
	.task_set = module_task_set,
	.task_move = module_task_move,
	.changed = module_ask_again,
	.configured = module_configured,
	.look = module_look,
	.count = module_count,
	.account_view = module_account_view,
	.lane_view = module_lane_view,
	.advice = module_advice,
	.check = module_check,
};

/* --- start and end ---------------------------------------------------------------------------- */

/*
 * Becomes the front if the module is loaded. 0 also where it is not (or does not know these calls)
 * and the caller does not insist: then the host stays what it was. Every other end is an error,
 * with a line on stderr: two hosts for one GPU would be worse than none.
 */
int module_start(struct daemon *d, bool insist)
{
	struct rtxg_host_info info;
	int ret;

	module_link.fd = open(RTXG_MODULE_DEVICE, O_RDWR | O_CLOEXEC);
	if (module_link.fd < 0) {
		if (!insist && (errno == ENOENT || errno == ENXIO || errno == ENODEV))
			return 0;
		fprintf(stderr, "rtxgd: %s cannot be opened: %s%s\n", RTXG_MODULE_DEVICE,
			strerrordesc_np(errno), errno == ENOENT ? "; load rtxg.ko" : "");
		return -errno;
	}
	ret = module_picture_begin();
	if (!ret)
		ret = module_ask_front(d);
	if (!ret)
		ret = module_ask_info(&info);
	if (!ret) {
		d->host = &host_module;
		d->generation = info.generation & INT64_MAX;
		d->tasks_max = info.max_tasks;
		return 0;
	}
	if (ret == -EPERM)
		fprintf(stderr, "rtxgd: the kernel module hosts GPU tasks here, and speaking for "
				"it needs CAP_SYS_NICE: start the system's "
				"daemon as root (systemctl start rtxgd, or rtxgd --system); or say "
				"--host=daemon for one that hosts "
				"programs started with RTXG_HOST=daemon\n");
	else if (ret == -EBUSY && !module_ask_info(&info))
		fprintf(stderr, "rtxgd: process %u speaks for the kernel module already\n",
			info.front);
	else if (ret == -ENOTTY)
		fprintf(stderr, "rtxgd: the kernel module that is loaded is of another version; "
				"load the one that came with this rtxgd\n");
	else
		fprintf(stderr, "rtxgd: the kernel module does not accept this daemon: %s%s%s\n",
			strerrordesc_np(-ret), d->refusal.what ? ": " : "",
			d->refusal.what ? d->refusal.what : "");
	module_stop();
	return ret;
}

/* The loop is there: from now on the first task is seen when it comes. */
void module_watch(struct daemon *d)
{
	if (module_link.fd < 0)
		return;
	if (module_picture_watch(d) < 0)
		fprintf(stderr, "rtxgd: news of the kernel module cannot be waited for; history "
				"begins with the first request\n");
	module_look(d);
}

void module_stop(void)
{
	module_picture_end();
	if (module_link.fd >= 0)
		close(module_link.fd);
	module_link.fd = -1;
}
