// SPDX-License-Identifier: MIT
/*
 * control_vgpu.c - requests about vGPUs. Whether a share fits is the core's to say.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend.h"
#include "binding.h"
#include "control_cgroup.h"
#include "control_vgpu.h"
#include "host.h"
#include "keep.h"
#include "memory.h"
#include "objects.h"
#include "params.h"
#include "persist.h"
#include "place.h"
#include "reply.h"
#include "report.h"

struct vgpu *control_find_vgpu(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = objects_vgpu_find(c->daemon, r->vgpu);

	if (!vgpu)
		reply_no_such(c, r, "vGPU", r->vgpu, "\"rtxg vgpu ls\" lists them");
	return vgpu;
}

void control_vgpu_list(struct connection *c, const struct request *r)
{
	uint64_t used[VGPUS_MAX];
	struct daemon *d = c->daemon;
	const struct vgpu *vgpu;
	json_t *list, *one;

	if (given(r, M_VGPU) && !control_find_vgpu(c, r))
		return;
	list = json_array();
	backend_memory(d, used);
	for (uint64_t order = 0; (vgpu = report_next_vgpu(d, order)); order = vgpu->created) {
		if (given(r, M_VGPU) && strcmp(vgpu->name, r->vgpu) != 0)
			continue;
		one = report_vgpu(d, vgpu);
		report_put_known(one, "memory_used", used[vgpu - d->vgpus]);
		json_array_append_new(list, one);
	}
	reply_ok(c, r, json_pack("{s:o}", "vgpus", list));
}

/* A transient vGPU goes with the client, or with the process that the client names. */
static int follow(struct connection *c, const struct request *r, struct vgpu *vgpu)
{
	pid_t pid = given(r, M_PID) ? (pid_t)r->pid : c->pid;
	int fd = given(r, M_PID) ? (int)syscall(SYS_pidfd_open, pid, 0u)
				 : fcntl(c->pidfd, F_DUPFD_CLOEXEC, 3);

	return objects_vgpu_follow(c->daemon, vgpu, fd, pid);
}

static int bind_cgroup(struct connection *c, const struct request *r, struct vgpu *vgpu, char *why,
		       size_t size)
{
	struct request named = *r;
	char name[CGROUP_MAX + 1];
	uid_t uid;
	int error;

	if (!given(r, M_CGROUP))
		return 0;
	named.given &= ~MESSAGE_BIT(M_PID); /* that is whom the vGPU goes with */
	error = control_cgroup_name(c, &named, vgpu, name, &uid, why, size);
	return error ? error : binding_add(c->daemon, name, vgpu, uid, false, why, size);
}

void control_vgpu_create(struct connection *c, const struct request *r)
{
	struct daemon *d = c->daemon;
	struct rtxg_refusal refusal = { 0 };
	struct vgpu wanted =
		params_vgpu(d, r->vgpu, r->transient ? ORIGIN_TRANSIENT : ORIGIN_RUNTIME);
	struct vgpu *vgpu = NULL;
	char why[512];
	int error;

	if (r->transient && r->persist) {
		reply_error(c, r->op_name, -EINVAL,
			    "a vGPU is either \"transient\" or \"persist\", not both", NULL);
		return;
	}
	if (given(r, M_PID) && !r->transient) {
		reply_error(c, r->op_name, -EINVAL,
			    "\"pid\" goes with \"transient\": the vGPU goes with that process",
			    NULL);
		return;
	}
	if (given(r, M_GPU))
		strcpy(wanted.gpu, r->gpu);
	params_merge_vgpu(&wanted, r);
	error = objects_vgpu_create(d, &wanted, &vgpu, why, sizeof(why), &refusal);
	if (error) {
		reply_error(c, r->op_name, error, why, &refusal);
		return;
	}
	if (r->transient) {
		if (follow(c, r, vgpu)) {
			objects_vgpu_remove(d, vgpu);
			reply_error(c, r->op_name, -ESRCH,
				    "the end of the process cannot be watched, or it has ended",
				    NULL);
			return;
		}
		d->host->changed(d, NULL, vgpu);
	}
	error = memory_admit(d, vgpu, why, sizeof(why));
	if (!error)
		error = bind_cgroup(c, r, vgpu, why, sizeof(why));
	if (!error && r->persist)
		error = persist_write(d, vgpu, why, sizeof(why));
	if (error) {
		objects_vgpu_remove(d, vgpu);
		reply_error(c, r->op_name, error, why, NULL);
		return;
	}
	if (given(r, M_CGROUP))
		place_all(d);
	keep_save(d);
	reply_ok(c, r, keep_warn(json_pack("{s:o}", "vgpu", report_vgpu(d, vgpu))));
}

void control_vgpu_set(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = control_find_vgpu(c, r), changed, before;
	struct rtxg_refusal refusal = { 0 };
	struct daemon *d = c->daemon;
	char why[512];
	int error;

	if (!vgpu)
		return;
	before = changed = *vgpu;
	params_merge_vgpu(&changed, r);
	error = changed.memory_bytes == before.memory_bytes
			? 0
			: memory_admit(d, &changed, why, sizeof(why));
	if (!error)
		error = objects_vgpu_change(d, vgpu, &changed, why, sizeof(why), &refusal);
	if (error) {
		reply_error(c, r->op_name, error, why, &refusal);
		return;
	}
	vgpu->changed = true;
	error = r->persist ? persist_write(d, vgpu, why, sizeof(why)) : 0;
	if (error) {
		char ignored[256];

		objects_vgpu_change(d, vgpu, &before, ignored, sizeof(ignored), NULL);
		vgpu->changed = before.changed;
		reply_error(c, r->op_name, error, why, NULL);
		return;
	}
	keep_save(d);
	reply_ok(c, r, keep_warn(json_pack("{s:o}", "vgpu", report_vgpu(d, vgpu))));
}

void control_vgpu_remove(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = control_find_vgpu(c, r);
	char why[768];
	int error;

	if (!vgpu)
		return;
	if (vgpu->origin == ORIGIN_BUILTIN) {
		reply_error(c, r->op_name, -EPERM,
			    "vGPU default is where tasks go that name none; it stays", NULL);
		return;
	}
	snprintf(why, sizeof(why),
		 "vGPU %s has %u tasks in it, or on their way to it; end or move them first (rtxg "
		 "ps)",
		 vgpu->name, vgpu->tasks);
	if (objects_vgpu_remove(c->daemon, vgpu)) {
		reply_error(c, r->op_name, -EBUSY, why, NULL);
		return;
	}
	keep_save(c->daemon);
	error = persist_remove(c->daemon, r->vgpu, why, sizeof(why));
	if (error)
		reply_error(c, r->op_name, error, why, NULL);
	else
		reply_ok(c, r, keep_warn(json_object()));
}
