// SPDX-License-Identifier: MIT
/*
 * control.c - the table of requests, and what holds for each before its handler runs. A handler
 * answers exactly once. Every value in a request has been read by message.c; whether the values
 * make sense together is checked by the handler or by the core.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "access.h"
#include "config_apply.h"
#include "control.h"
#include "control_cgroup.h"
#include "control_gpu.h"
#include "control_pool.h"
#include "control_stats.h"
#include "control_task.h"
#include "control_vgpu.h"
#include "doctor.h"
#include "host.h"
#include "keep.h"
#include "reply.h"

/* What a request needs; see allowed() and picture(). */
enum {
	ADMINISTRATOR = 1 << 0, /* it changes the system's daemon */
	HOST_HERE = 1 << 1,	/* tasks open through our socket */
	TASK = 1 << 2,		/* the connection has a task */
	DESCRIPTOR = 1 << 3,	/* a descriptor may come with it */
	EVEN_WAITING = 1 << 4,	/* possible while the task waits for a GPU of a pool */
	NO_PICTURE = 1 << 5,	/* does not look at the host's objects, or does that by itself */
	OLD_PICTURE = 1 << 6,	/* what the last sample saw is good enough */
};

/* --- the daemon itself ------------------------------------------------------------------------ */

static void control_hello(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;

	reply_ok(c, r,
		 json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:s, s:I, s:I, s:I, s:s, s:I, s:{s:i, "
			   "s:i, s:i, s:b, s:b}}",
			   "version", RTXG_VERSION, "protocol", RTXG_PROTOCOL, "host",
			   d->host->name, "scope", d->system ? "system" : "user", "pid",
			   (int)getpid(), "uid", (int)geteuid(), "socket", d->socket_path,
			   "started_ns", (json_int_t)d->started_ns, "now_ns",
			   (json_int_t)rtxg_now_ns(), "generation", (json_int_t)d->generation,
			   "fail_policy",
			   !d->host->here   ? "managed"
			   : d->fail_closed ? "closed"
					    : "open",
			   "idle_exit_ns", (json_int_t)d->idle_exit_ns, "you", "pid", (int)c->pid,
			   "uid", (int)c->uid, "gid", (int)c->gid, "administrator",
			   access_administer(c), "may_raise", access_raise(c)));
}

static void control_limits(struct connection *c, const struct request *r)
{
	reply_ok(c, r, doctor_limits(c->daemon));
}

static void control_doctor(struct connection *c, const struct request *r)
{
	reply_ok(c, r, doctor_report(c->daemon, c));
}

static void control_reload(struct connection *c, const struct request *r)
{
	json_t *messages = json_array(), *changes = json_array();
	int errors = config_load(c->daemon, messages, changes);

	keep_save(c->daemon);
	reply_ok(c, r,
		 json_pack("{s:o, s:o, s:i}", "messages", messages, "changes", changes, "errors",
			   errors));
}

static void control_shutdown(struct connection *c, const struct request *r)
{
	char why[128];

	if (c->daemon->host->here && c->daemon->tasks_count && !r->force) {
		snprintf(why, sizeof(why),
			 "%u tasks are open; \"force\" ends the daemon all the same",
			 c->daemon->tasks_count);
		reply_error(c, r->op_name, -EBUSY, why, NULL);
		return;
	}
	reply_ok(c, r, NULL);
	c->daemon->stop = true;
}

/* --- the table -------------------------------------------------------------------------------- */

#define B(member)   MESSAGE_BIT(M_##member)
#define TASK_PARAMS MESSAGE_TASK_PARAMS
#define VGPU_PARAMS MESSAGE_VGPU_PARAMS
#define GPU_PARAMS  MESSAGE_GPU_PARAMS

static const struct message_op ops[] = {
	{ "hello", 0, 0, control_hello, NO_PICTURE },
	{ "gpu-list", 0, 0, control_gpu_list, 0 },
	{ "gpu-set", 0, B(GPU) | GPU_PARAMS, control_gpu_set, ADMINISTRATOR },
	{ "vgpu-list", 0, B(VGPU), control_vgpu_list, 0 },
	{ "vgpu-create", B(VGPU),
	  B(GPU) | VGPU_PARAMS | B(TRANSIENT) | B(PERSIST) | B(CGROUP) | B(PID),
	  control_vgpu_create, ADMINISTRATOR },
	{ "vgpu-set", B(VGPU), VGPU_PARAMS | B(PERSIST), control_vgpu_set, ADMINISTRATOR },
	{ "vgpu-remove", B(VGPU), 0, control_vgpu_remove, ADMINISTRATOR },
	{ "cgroup-bind", B(VGPU), B(CGROUP) | B(PID) | B(PERSIST) | B(TRANSIENT),
	  control_cgroup_bind, 0 },
	{ "cgroup-unbind", B(VGPU) | B(CGROUP), B(PERSIST), control_cgroup_unbind, 0 },
	{ "task-list", 0, B(VGPU) | B(GPU) | B(PID) | B(TASK), control_task_list, NO_PICTURE },
	{ "task-set", 0, B(TASK) | B(PID) | B(VGPU) | TASK_PARAMS, control_task_set, 0 },
	{ "pool-list", 0, 0, control_pool_list, 0 },
	{ "pool-create", B(POOL) | B(GPUS), 0, control_pool_create, ADMINISTRATOR },
	{ "pool-remove", B(POOL), 0, control_pool_remove, ADMINISTRATOR },
	{ "advice", 0, B(POOL), control_advice, 0 },
	{ "stats", 0, B(GPU) | B(TASKS), control_stats, 0 },
	{ "history", 0, B(GPU) | B(SINCE), control_history, 0 },
	{ "timeline", 0, B(SINCE), control_timeline, 0 },
	{ "metrics", 0, 0, control_metrics, OLD_PICTURE },
	{ "limits", 0, 0, control_limits, 0 },
	{ "doctor", 0, 0, control_doctor, 0 },
	{ "reload", 0, 0, control_reload, ADMINISTRATOR },
	{ "shutdown", 0, B(FORCE), control_shutdown, ADMINISTRATOR },
	{ "place", 0, B(GPU) | B(VGPU) | B(PRIORITY), control_place, OLD_PICTURE },
	{ "open", 0, B(GPU) | B(VGPU) | TASK_PARAMS | B(TAKEOVER), control_open,
	  HOST_HERE | DESCRIPTOR },
	{ "set", 0, TASK_PARAMS, control_set, HOST_HERE | TASK },
	{ "fence", B(LANE) | B(OFFSET), 0, control_fence, HOST_HERE | TASK | DESCRIPTOR },
	{ "fence-event", B(LANE), 0, control_fence_event, HOST_HERE | TASK | DESCRIPTOR },
	{ "pool-acquire", B(POOL), B(THREAD), control_pool_acquire, HOST_HERE | TASK },
	{ "pool-release", B(POOL), 0, control_pool_release, HOST_HERE | TASK | EVEN_WAITING },
	{ 0 },
};

/* --- before a handler runs -------------------------------------------------------------------- */

/* Why the request is not possible here, or for this client: 0 or a negative errno. */
static int allowed(const struct connection *c, const struct request *r, char *why, size_t size)
{
	uint32_t needs = r->op->needs;

	if (r->fd >= 0 && !(needs & DESCRIPTOR)) {
		snprintf(why, size, "a descriptor came that was not asked for");
		return -EBADMSG;
	}
	if (needs & ADMINISTRATOR && !access_administer(c)) {
		snprintf(why, size,
			 "\"%s\" changes the system's daemon; that needs root or membership in "
			 "group rtxg",
			 r->op_name);
		return -EPERM;
	}
	if (needs & HOST_HERE && !c->daemon->host->here) {
		snprintf(why, size,
			 "the kernel module hosts GPU tasks here: a program "
			 "opens " RTXG_MODULE_DEVICE ", not this socket");
		return -EOPNOTSUPP;
	}
	/* While a request for a pool waits its reply must be the next one. */
	if (c->task && c->task->pool && !c->task->permit.pool_held && !(needs & EVEN_WAITING)) {
		snprintf(why, size,
			 "the task waits for a GPU of a pool; only pool-release is possible");
		return -EBUSY;
	}
	if (needs & TASK && !c->task) {
		snprintf(why, size, "this connection has no task; \"open\" comes first");
		return -ENOTCONN;
	}
	return 0;
}

/*
 * Brings our tables up to date. Every start of a program asks where a task belongs; while tasks are
 * open the picture is never older than a sample.
 */
static void picture(struct daemon *d, uint32_t needs)
{
	if (!(needs & NO_PICTURE) && (!(needs & OLD_PICTURE) || !d->tasks_count))
		d->host->look(d);
}

void control_packet(struct connection *c, const char *text, size_t size, int fd)
{
	struct request request;
	char why[512];
	int error = message_parse(ops, text, size, &request, why, sizeof(why));

	request.fd = fd;
	if (!error)
		error = allowed(c, &request, why, sizeof(why));
	if (error) {
		reply_error(c, request.op_name, error, why, NULL);
		/* The next packet would not be understood, either. */
		if (error == -EBADMSG)
			c->closing = true;
		return;
	}
	picture(c->daemon, request.op->needs);
	request.op->handler(c, &request);
}
