// SPDX-License-Identifier: MIT
/*
 * control_cgroup.c - requests about cgroups with a vGPU. Administrators bind any cgroup. A user
 * binds those whose folder belongs to that user, and only for processes of the same user.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "access.h"
#include "binding.h"
#include "control_cgroup.h"
#include "keep.h"
#include "objects.h"
#include "persist.h"
#include "place.h"
#include "process.h"
#include "reply.h"
#include "report.h"

static int of_process(const struct connection *c, pid_t pid, char name[CGROUP_MAX + 1], char *why,
		      size_t size)
{
	int error = access_sees_process(c, pid) ? cgroup_of(pid, name) : -ESRCH;

	if (error == -EXDEV)
		snprintf(why, size,
			 "the cgroup of process %d lies outside of what rtxgd sees; run rtxgd in "
			 "the host's cgroup namespace",
			 pid);
	else if (error)
		snprintf(why, size, "there is no process %d", pid);
	if (error || strcmp(name, "/") != 0)
		return error;
	snprintf(why, size,
		 "process %d is in the root of the cgroups, as every process is; put it into one "
		 "below that first",
		 pid);
	return -EINVAL;
}

/* What an ordinary user may bind. */
static int may_bind(const struct connection *c, const struct vgpu *vgpu, const char *name,
		    char *why, size_t size)
{
	uid_t owner;

	if (!access_vgpu(vgpu, c)) {
		snprintf(why, size, "user %u may not use vGPU %s", c->uid, vgpu->name);
		return -EACCES;
	}
	if (*name != '/') {
		snprintf(why, size,
			 "%s is a unit of the system; binding it needs root or group rtxg, and a "
			 "path of your own begins with /",
			 name);
		return -EPERM;
	}
	if (cgroup_owner(name, &owner)) {
		snprintf(why, size,
			 "there is no cgroup %.300s; make it first, or bind it as root or a member "
			 "of group rtxg",
			 name);
		return -ENOENT;
	}
	if (owner != c->uid) {
		snprintf(why, size,
			 "cgroup %.300s belongs to user %u; binding another user's cgroup needs "
			 "root or group rtxg",
			 name, owner);
		return -EPERM;
	}
	return 0;
}

int control_cgroup_name(struct connection *c, const struct request *r, const struct vgpu *vgpu,
			char name[RTXG_CGROUP_MAX + 1], uid_t *uid, char *why, size_t size)
{
	bool administrator = access_administer(c);
	const char *wrong;
	int error = 0;

	if (given(r, M_CGROUP) && given(r, M_PID)) {
		snprintf(why, size, "either \"cgroup\" or \"pid\" is accepted, not both");
		return -EINVAL;
	}
	if (given(r, M_PID) || !given(r, M_CGROUP)) {
		error = of_process(c, given(r, M_PID) ? (pid_t)r->pid : c->pid, name, why, size);
	} else if ((wrong = cgroup_clean(r->cgroup, name))) {
		snprintf(why, size, "cgroup \"%.200s\" is not accepted: %s", r->cgroup, wrong);
		error = -EINVAL;
	} else if (*name == '/' && process_sees_other_cgroups(c->pid)) {
		/* A path means another cgroup to a client whose root is another. */
		snprintf(
			why, size,
			"cgroup %.300s is another one here: the client is in a cgroup namespace of "
			"its own; name a process in the cgroup by its pid instead",
			name);
		error = -EXDEV;
	}
	if (!error && !administrator)
		error = may_bind(c, vgpu, name, why, size);
	*uid = administrator ? 0 : c->uid;
	return error;
}

static struct vgpu *find_vgpu(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = objects_vgpu_find(c->daemon, r->vgpu);

	if (!vgpu)
		reply_no_such(c, r, "vGPU", r->vgpu, "\"rtxg vgpu ls\" lists them");
	return vgpu;
}

static void answer(struct connection *c, const struct request *r, struct vgpu *vgpu)
{
	char why[768];
	int error;

	place_all(c->daemon);
	/* One that goes with its last task has just lost that. */
	if (!vgpu->used) {
		reply_no_such(c, r, "vGPU", r->vgpu, "it has just ended with its last task");
		return;
	}
	error = r->persist ? persist_write(c->daemon, vgpu, why, sizeof(why)) : 0;
	keep_save(c->daemon);
	if (error)
		reply_error(c, r->op_name, error, why, NULL);
	else
		reply_ok(c, r, keep_warn(json_pack("{s:o}", "vgpu", report_vgpu(c->daemon, vgpu))));
}

/* The configuration is an administrator's. */
static bool may_persist(struct connection *c, const struct request *r)
{
	if (!r->persist || access_administer(c))
		return true;
	reply_error(c, r->op_name, -EPERM,
		    "\"persist\" changes the system's configuration; that needs root or membership "
		    "in group rtxg",
		    NULL);
	return false;
}

void control_cgroup_bind(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = find_vgpu(c, r);
	char name[CGROUP_MAX + 1], why[768];
	uid_t uid;
	int error;

	if (!vgpu || !may_persist(c, r))
		return;
	if (r->transient && r->persist) {
		reply_error(c, r->op_name, -EINVAL,
			    "a cgroup is bound either \"transient\" or \"persist\", not both",
			    NULL);
		return;
	}
	error = control_cgroup_name(c, r, vgpu, name, &uid, why, sizeof(why));
	if (!error)
		error = binding_add(c->daemon, name, vgpu, uid, false, why, sizeof(why));
	if (!error && r->transient)
		binding_follow(c->daemon, name);
	if (error)
		reply_error(c, r->op_name, error, why, NULL);
	else
		answer(c, r, vgpu);
}

void control_cgroup_unbind(struct connection *c, const struct request *r)
{
	struct vgpu *vgpu = find_vgpu(c, r);
	char name[CGROUP_MAX + 1], why[768];
	const char *wrong;
	int error;

	if (!vgpu || !may_persist(c, r))
		return;
	wrong = cgroup_clean(r->cgroup, name);
	error = wrong ? -EINVAL
		      : binding_remove(c->daemon, name, vgpu, access_administer(c) ? 0 : c->uid);
	if (wrong)
		snprintf(why, sizeof(why), "cgroup \"%.200s\" is not accepted: %s", r->cgroup,
			 wrong);
	else if (error == -EACCES)
		snprintf(why, sizeof(why),
			 "cgroup %s was bound by another user; that user, root and group rtxg may "
			 "take it out",
			 name);
	else if (error)
		snprintf(why, sizeof(why),
			 "vGPU %s has no cgroup %s; \"rtxg vgpu ls -o VGPU,CGROUPS\" lists them",
			 vgpu->name, name);
	if (error)
		reply_error(c, r->op_name, error, why, NULL);
	else
		answer(c, r, vgpu);
}
