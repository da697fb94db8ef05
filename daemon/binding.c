// SPDX-License-Identifier: MIT
/*
 * binding.c - which cgroups belong to which vGPU. A cgroup is known by its name, so a service that
 * is started again, or a container of the same name, belongs where it did. What is bound need not
 * be there. May not move a task: place.c does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"
#include "user.h"

static struct binding *find(const struct daemon *d, const char *cgroup)
{
	for (uint32_t i = 0; i < d->bindings_count; i++)
		if (!strcmp(d->bindings[i].cgroup, cgroup))
			return &d->bindings[i];
	return NULL;
}

/* It counts for its user. Administrators, number 0 here, have no quota. */
static void count_for(struct daemon *d, struct binding *b, uid_t uid)
{
	if (b->user)
		b->user->cgroups--;
	b->user = uid ? user_get(d, uid) : NULL;
	if (b->user)
		b->user->cgroups++;
}

static void drop(struct daemon *d, uint32_t i)
{
	count_for(d, &d->bindings[i], 0);
	free(d->bindings[i].cgroup);
	/* Lists show them in the order in which they were made. */
	memmove(&d->bindings[i], &d->bindings[i + 1],
		(--d->bindings_count - i) * sizeof(*d->bindings));
}

static bool has_gone(const struct binding *b)
{
	uid_t uid;

	return b->transient && cgroup_owner(b->cgroup, &uid);
}

bool binding_next(struct daemon *d)
{
	uint32_t i = d->bindings_count ? d->binding_next++ % d->bindings_count : 0;
	bool gone = d->bindings_count && has_gone(&d->bindings[i]);

	if (gone)
		drop(d, i);
	return gone;
}

void binding_follow(struct daemon *d, const char *cgroup)
{
	struct binding *b = find(d, cgroup);

	if (b)
		b->transient = true;
}

static int may_have(struct daemon *d, uid_t uid, char *why, size_t size)
{
	const struct user *user = uid ? user_get(d, uid) : NULL;

	if (d->bindings_count == BINDINGS_MAX) {
		snprintf(why, size, "there are %u cgroups with a vGPU already, which is the most",
			 BINDINGS_MAX);
		return -ENOSPC;
	}
	if (!uid)
		return 0;
	if (!user) {
		snprintf(why, size, "there is no memory for user %u", uid);
		return -ENOMEM;
	}
	if (!user_may(user->cgroups, USER_CGROUPS, d->bindings_count, BINDINGS_MAX,
		      RESERVE_CGROUPS)) {
		snprintf(why, size,
			 "user %u has bound %u cgroups already: of %u in all, one user binds at "
			 "most %u, and no more than are left",
			 uid, user->cgroups, BINDINGS_MAX, USER_CGROUPS);
		return -ENOSPC;
	}
	return 0;
}

int binding_add(struct daemon *d, const char *cgroup, struct vgpu *vgpu, uid_t uid, bool configured,
		char *why, size_t size)
{
	struct binding *b = find(d, cgroup), *more;
	char *name;
	int error;

	if (b && uid && b->uid != uid) {
		snprintf(why, size, "cgroup %s is bound to vGPU %s, by another user", cgroup,
			 b->vgpu->name);
		return -EACCES;
	}
	if (b) {
		count_for(d, b, uid);
		b->vgpu = vgpu;
		b->uid = uid;
		b->configured = configured;
		b->transient = false;
		return 0;
	}
	/* Of many containers that came and went some may not have been looked at since. */
	for (uint32_t i = d->bindings_count; i-- > 0 && d->bindings_count >= BINDINGS_MAX / 2;)
		if (has_gone(&d->bindings[i]))
			drop(d, i);
	error = may_have(d, uid, why, size);
	if (error)
		return error;
	name = strdup(cgroup);
	more = name ? realloc(d->bindings, (d->bindings_count + 1) * sizeof(*more)) : NULL;
	if (!more) {
		free(name);
		snprintf(why, size, "there is no memory for cgroup %s", cgroup);
		return -ENOMEM;
	}
	d->bindings = more;
	b = &more[d->bindings_count++];
	*b = (struct binding){ .cgroup = name, .vgpu = vgpu, .uid = uid, .configured = configured };
	count_for(d, b, uid);
	return 0;
}

int binding_remove(struct daemon *d, const char *cgroup, const struct vgpu *vgpu, uid_t uid)
{
	struct binding *b = find(d, cgroup);

	if (!b || b->vgpu != vgpu)
		return -ENOENT;
	if (uid && b->uid != uid)
		return -EACCES;
	drop(d, (uint32_t)(b - d->bindings));
	return 0;
}

void binding_forget(struct daemon *d, const struct vgpu *vgpu)
{
	for (uint32_t i = d->bindings_count; i-- > 0;)
		if (d->bindings[i].vgpu == vgpu)
			drop(d, i);
}

void binding_forget_configured(struct daemon *d)
{
	for (uint32_t i = d->bindings_count; i-- > 0;)
		if (d->bindings[i].configured)
			drop(d, i);
}

struct vgpu *binding_find(const struct daemon *d, const char *path, uid_t uid)
{
	struct vgpu *best = NULL;
	unsigned int deepest = 0;

	for (uint32_t i = 0; i < d->bindings_count; i++) {
		const struct binding *b = &d->bindings[i];
		unsigned int depth;

		if (b->uid && b->uid != uid)
			continue;
		depth = cgroup_depth(path, b->cgroup, false);
		if (depth > deepest) {
			deepest = depth;
			best = b->vgpu;
		}
	}
	return best;
}

json_t *binding_report(const struct daemon *d, const struct vgpu *vgpu)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < d->bindings_count; i++)
		if (d->bindings[i].vgpu == vgpu)
			json_array_append_new(list, message_string(d->bindings[i].cgroup));
	return list;
}
