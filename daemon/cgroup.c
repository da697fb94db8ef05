// SPDX-License-Identifier: MIT
/*
 * cgroup.c - names of cgroups, and which one a process is in. The kernel says that of a process in
 * /proc/PID/cgroup, from the root that this daemon sees. A process cannot choose what stands there
 * beyond the cgroups that were delegated to its user. May not create, change or remove a cgroup.
 */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup.h"
#include "message.h"
#include "rtxg/name.h"

#define ROOT	  "/sys/fs/cgroup"
#define LINE_SIZE 8192

/* --- names ------------------------------------------------------------------------------------ */

static bool is_unit(const char *name)
{
	static const char *const kinds[] = { ".slice", ".service", ".scope" };
	size_t length = strlen(name);

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (length > strlen(kinds[i]) &&
		    !strcmp(name + length - strlen(kinds[i]), kinds[i]))
			return true;
	return false;
}

/* A component that is nothing, or that leads elsewhere. */
static bool has_odd_component(const char *path)
{
	for (const char *at = path; *at == '/';) {
		size_t length = strcspn(++at, "/");

		if (!length || (length == 1 && *at == '.') ||
		    (length == 2 && at[0] == '.' && at[1] == '.'))
			return true;
		at += length;
	}
	return false;
}

const char *cgroup_clean(const char *name, char clean[CGROUP_MAX + 1])
{
	size_t length;

	if (!strncmp(name, ROOT "/", strlen(ROOT "/")))
		name += strlen(ROOT);
	length = strlen(name);
	while (length > 1 && name[length - 1] == '/')
		length--;
	if (!length)
		return "it is empty; a path as /robot.slice, or a unit as camera.service, is "
		       "accepted";
	if (length > CGROUP_MAX)
		return "it is longer than 511 bytes";
	for (size_t i = 0, bytes; i < length; i += bytes) {
		bytes = rtxg_name_character((const unsigned char *)name + i, length - i);
		if (!bytes)
			return "it has a control character, or bytes that are not UTF-8";
	}
	memcpy(clean, name, length);
	clean[length] = 0;
	if (!strcmp(clean, "/"))
		return "every process is in the root; name a cgroup below it";
	if (*clean == '/')
		return has_odd_component(clean) ? "it has an empty component, . or .." : NULL;
	if (strchr(clean, '/') || !is_unit(clean))
		return "a path that begins with / as in /robot.slice/camera.service, or the name "
		       "of a .slice, .service or .scope, is accepted";
	return NULL;
}

/* --- processes -------------------------------------------------------------------------------- */

/*
 * The path of a line whose hierarchy (behind its number) is `mark`; false: nothing that fits. A
 * path may have the mark in it, as its user likes.
 */
static bool take(const char *line, const char *mark, char path[CGROUP_MAX + 1])
{
	const char *at = line + strspn(line, "0123456789");
	size_t length;

	if (strncmp(at, mark, strlen(mark)) != 0)
		return false;
	at += strlen(mark);
	length = strcspn(at, "\n");
	/* Of a path that is too long at least the cgroups above count. */
	for (bool cut = length > CGROUP_MAX; cut && (length > CGROUP_MAX || at[length] != '/');)
		length--;
	if (!length)
		return false;
	memcpy(path, at, length);
	path[length] = 0;
	return true;
}

static int look(pid_t pid, char path[CGROUP_MAX + 1])
{
	char file[64], line[LINE_SIZE], systemd[CGROUP_MAX + 1] = "";
	FILE *f;

	snprintf(file, sizeof(file), "/proc/%d/cgroup", pid);
	f = fopen(file, "re");
	if (!f)
		return -ESRCH;
	path[0] = 0;
	while (fgets(line, sizeof(line), f)) {
		if (!take(line, "::", path))
			take(line, ":name=systemd:", systemd);
	}
	fclose(f);
	/* Where systemd has a hierarchy of its own, processes may be in the root of the other. */
	if ((!*path || !strcmp(path, "/")) && *systemd)
		strcpy(path, systemd);
	return *path ? 0 : -ESRCH;
}

int cgroup_of(pid_t pid, char path[CGROUP_MAX + 1])
{
	int error = look(pid, path);

	/* It lies outside of the cgroup that is the root for this daemon. */
	if (!error && (!strncmp(path, "/../", 4) || !strcmp(path, "/..")))
		return -EXDEV;
	return error;
}

int cgroup_owner(const char *path, uid_t *uid)
{
	static const char *const mounts[] = { ROOT, ROOT "/unified", ROOT "/systemd" };
	char full[CGROUP_MAX + 64];
	struct stat st;

	for (size_t i = 0; i < sizeof(mounts) / sizeof(*mounts); i++) {
		snprintf(full, sizeof(full), "%s%s", mounts[i], path);
		if (!stat(full, &st) && S_ISDIR(st.st_mode)) {
			*uid = st.st_uid;
			return 0;
		}
	}
	return -ENOENT;
}

/* A user may call a cgroup of its own as it likes, also as a unit of the system is called. */
static bool is_systems(const char *path)
{
	uid_t uid;

	return !cgroup_owner(path, &uid) && (uid == 0 || uid == geteuid());
}

unsigned int cgroup_depth(const char *path, const char *name, bool pattern)
{
	char front[CGROUP_MAX + 1];
	unsigned int depth = 0;
	bool unit = *name != '/';

	for (const char *at = path; *at == '/' && at[1];) {
		const char *whole;

		at += 1 + strcspn(at + 1, "/");
		memcpy(front, path, (size_t)(at - path));
		front[at - path] = 0;
		depth++;
		whole = unit ? strrchr(front, '/') + 1 : front;
		if (pattern ? !fnmatch(name, whole, FNM_PATHNAME) : !strcmp(name, whole))
			if (!unit || is_systems(front))
				return depth;
	}
	return 0;
}
