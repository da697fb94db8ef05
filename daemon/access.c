// SPDX-License-Identifier: MIT
/*
 * access.c - who may do what, and which vGPU a process belongs to. A connection's user and process
 * come from the kernel. /proc tells the rest of the process. May not change anything.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "access.h"
#include "binding.h"
#include "names.h"
#include "process.h"

/* --- who may ---------------------------------------------------------------------------------- */

bool access_administer(const struct connection *c)
{
	return c->uid == 0 || c->group || (!c->daemon->system && c->uid == geteuid());
}

/*
 * A capability of the process would say it, too. But the kernel tells of a connection only its
 * user, its groups and its process. What /proc says of that process now need not be true of the
 * client: the process may have become a set-user-ID program, and its child speaks.
 */
bool access_raise(const struct connection *c)
{
	return access_administer(c);
}

bool access_in_group(int fd, gid_t group)
{
	gid_t groups[256];
	socklen_t size = sizeof(groups);

	if (group == (gid_t)-1 || getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size))
		return false;
	for (size_t i = 0; i < size / sizeof(*groups); i++)
		if (groups[i] == group)
			return true;
	return false;
}

bool access_sees(const struct connection *c, uid_t owner)
{
	gid_t group;

	return access_administer(c) || owner == c->uid || !process_others_hidden(&group) ||
	       (group != (gid_t)-1 && (c->gid == group || access_in_group(c->fd, group)));
}

bool access_sees_process(const struct connection *c, pid_t pid)
{
	uid_t owner;

	return process_owner(pid, &owner) && access_sees(c, owner);
}

/* --- who goes where --------------------------------------------------------------------------- */

bool access_vgpu_user(const struct vgpu *vgpu, uid_t uid)
{
	if (!vgpu->users_count || uid == 0)
		return true;
	for (uint32_t i = 0; i < vgpu->users_count; i++)
		if (names_user_is(vgpu->users[i], uid))
			return true;
	return false;
}

bool access_vgpu(const struct vgpu *vgpu, const struct connection *c)
{
	return access_administer(c) || access_vgpu_user(vgpu, c->uid);
}

bool access_vgpu_all(const struct vgpu *vgpu, const struct connection *c)
{
	return access_administer(c) ||
	       (vgpu->users_count == 1 && names_user_is(vgpu->users[0], c->uid));
}

static bool runs(pid_t pid, const char *exec)
{
	char exe[PROCESS_EXE];
	const char *name;

	process_exe(pid, exe);
	if (!*exe)
		return false;
	name = strrchr(exe, '/');
	return !fnmatch(exec, *exec == '/' || !name ? exe : name + 1, 0);
}

/* The deepest cgroup with a vGPU, else the first [Match] rule whose every condition holds. */
void access_match(struct daemon *d, pid_t pid, uid_t uid, char name[RTXG_NAME_MAX + 1])
{
	char path[CGROUP_MAX + 1] = "";
	const struct vgpu *bound = NULL;

	if ((d->bindings_count || d->matches_count) && cgroup_of(pid, path))
		path[0] = 0;
	if (path[0])
		bound = binding_find(d, path, uid);
	if (bound) {
		strcpy(name, bound->name);
		return;
	}
	for (uint32_t i = 0; i < d->matches_count; i++) {
		const struct match *m = &d->matches[i];

		if (m->user[0] && !names_user_is(m->user, uid))
			continue;
		if (m->exec[0] && !runs(pid, m->exec))
			continue;
		/* As for a unit: a user may call a cgroup of its own so. */
		if (m->slice[0] && !cgroup_depth(path, m->slice, true))
			continue;
		if (m->cgroup[0] && !cgroup_depth(path, m->cgroup, true))
			continue;
		strcpy(name, m->vgpu);
		return;
	}
	strcpy(name, "default");
}
