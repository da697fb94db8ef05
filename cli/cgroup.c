// SPDX-License-Identifier: MIT
/*
 * cgroup.c - puts this process into a cgroup, and binds that to a vGPU. May not make a cgroup: what
 * makes one also has to remove it.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cgroup.h"
#include "control.h"
#include "message.h"

#define ROOT "/sys/fs/cgroup"

static int open_processes(const char *name)
{
	static const char *const hierarchies[] = { ROOT, ROOT "/unified" };
	char path[PATH_MAX];
	int fd = -1;

	for (size_t i = 0; i < sizeof(hierarchies) / sizeof(*hierarchies) && fd < 0; i++) {
		if (snprintf(path, sizeof(path), "%s%s/cgroup.procs", hierarchies[i], name) >=
		    (int)sizeof(path))
			return -ENAMETOOLONG;
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT)
			return -errno;
	}
	return fd < 0 ? -ENOENT : fd;
}

int cgroup_enter(const char *name)
{
	int fd, error = 0;

	if (strncmp(name, ROOT "/", strlen(ROOT "/")) == 0)
		name += strlen(ROOT);
	if (*name != '/') {
		message_error("--cgroup: '%s' is not accepted; accepted: the path of a cgroup, as "
			      "/robot.slice/camera.service",
			      name);
		return -EINVAL;
	}
	fd = open_processes(name);
	if (fd < 0)
		error = fd;
	else if (write(fd, "0", 1) != 1)
		error = -errno;
	if (fd >= 0)
		close(fd);
	if (error == -ENOENT)
		message_error("--cgroup: there is no cgroup '%s'; 'systemd-cgls' lists them, "
			      "'systemd-run --slice' makes one",
			      name);
	else if (error == -EACCES || error == -EPERM)
		message_error("--cgroup: this process may not enter '%s'; that needs root, or that "
			      "the cgroup and the one above it belong to you",
			      name);
	else if (error)
		message_error("--cgroup: '%s' cannot be entered: %s", name, strerror(-error));
	return error;
}

int cgroup_bind_own(const char *vgpu)
{
	json_t *reply;
	int error;

	reply = control_ask(json_pack("{s:s, s:s}", "op", "cgroup-bind", "vgpu", vgpu), &error);
	json_decref(reply);
	return error;
}
