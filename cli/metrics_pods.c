// SPDX-License-Identifier: MIT
/*
 * metrics_pods.c - the pod and the container of a process, by the path that Kubernetes gives its
 * cgroup: .../kubepods-pod<UID>.slice/cri-containerd-<ID>.scope, or .../pod<UID>/<ID>. Their names
 * are in the link that the kubelet makes for the container's log. May not read anything else of a
 * process, nor a log.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "metrics_pods.h"

/* What tells a process from another of its number: proc has a new file for each. */
struct identity {
	long long pid;
	ino_t file;
	struct timespec made;
};

struct known {
	struct identity process; /* pid 0: none */
	struct metrics_pod pod;
};

static struct known *known;
static size_t known_room;

/* A cgroup's path, in the lines of the file: of version 2, or of some controller of version 1. */
static void read_path(char *line, struct metrics_pod *pod)
{
	/* "kubepods" has a "pod", too. */
	for (const char *at = strstr(line, "pod"); at; at = strstr(at + 1, "pod")) {
		size_t n = strspn(at + 3, "0123456789abcdef-_");

		if (n == 36 || n == 32) {
			snprintf(pod->uid, sizeof(pod->uid), "%.*s", (int)n, at + 3);
			break;
		}
	}
	for (const char *at = line; *pod->uid && *at; at++) {
		size_t n = strspn(at, "0123456789abcdef");

		if (n == 64)
			snprintf(pod->id, sizeof(pod->id), "%.64s", at);
		at += n ? n - 1 : 0;
	}
	for (char *c = pod->uid; *c; c++)
		*c = *c == '_' ? '-' : *c;
}

/* One of the parts between the marks of a link's name. False: it is none. */
static bool take_part(char *to, size_t size, const char *from, const char *end)
{
	if (!end || end <= from || (size_t)(end - from) >= size)
		return false;
	memcpy(to, from, (size_t)(end - from));
	to[end - from] = 0;
	return true;
}

/* "POD_NAMESPACE_CONTAINER-ID.log": the first two have no _. */
static bool read_link(const char *name, struct metrics_pod *pod)
{
	const char *space = strchr(name, '_'), *container = space ? strchr(space + 1, '_') : NULL,
		   *dash = strrchr(name, '-');

	return container && dash && strncmp(dash + 1, pod->id, strlen(pod->id)) == 0 &&
	       strcmp(dash + 1 + strlen(pod->id), ".log") == 0 &&
	       take_part(pod->pod, sizeof(pod->pod), name, space) &&
	       take_part(pod->space, sizeof(pod->space), space + 1, container) &&
	       take_part(pod->container, sizeof(pod->container), container + 1, dash);
}

static void find_names(const char *logs, struct metrics_pod *pod)
{
	DIR *folder = *pod->id ? opendir(logs) : NULL;
	const struct dirent *link;

	while (folder && (link = readdir(folder)) && !read_link(link->d_name, pod))
		;
	if (folder)
		closedir(folder);
	if (!*pod->container)
		*pod->pod = *pod->space = 0;
}

static struct metrics_pod look(const char *proc, const char *logs, long long pid)
{
	char path[PATH_MAX], text[8192];
	struct metrics_pod pod = { .uid = "" };
	ssize_t n = -1;
	int fd = -1;

	if (snprintf(path, sizeof(path), "%s/%lld/cgroup", proc, pid) < (int)sizeof(path))
		fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	text[n > 0 ? n : 0] = 0;
	for (char *line = strtok(text, "\n"); line && !*pod.uid; line = strtok(NULL, "\n"))
		if (strstr(line, "kubepods"))
			read_path(line, &pod);
	find_names(logs, &pod);
	return pod;
}

/* False: there is no such process. */
static bool identify(const char *proc, long long pid, struct identity *process)
{
	char path[PATH_MAX];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/%lld", proc, pid) >= (int)sizeof(path) ||
	    stat(path, &st))
		return false;
	*process = (struct identity){ .pid = pid, .file = st.st_ino, .made = st.st_ctim };
	return true;
}

static bool same(const struct identity *a, const struct identity *b)
{
	return a->pid == b->pid && a->file == b->file && a->made.tv_sec == b->made.tv_sec &&
	       a->made.tv_nsec == b->made.tv_nsec;
}

struct metrics_pod metrics_pod_of(const char *proc, const char *logs, size_t place, long long pid)
{
	struct identity process;
	struct known *k;

	if (!identify(proc, pid, &process))
		return (struct metrics_pod){ .uid = "" };
	if (place >= known_room) {
		size_t room = place + 256;
		struct known *more = realloc(known, room * sizeof(*more));

		if (!more)
			return look(proc, logs, pid);
		memset(more + known_room, 0, (room - known_room) * sizeof(*more));
		known = more;
		known_room = room;
	}
	k = &known[place];
	if (!same(&k->process, &process))
		k->pod = look(proc, logs, pid);
	else if (!*k->pod.container)
		find_names(logs, &k->pod); /* the link may come after the process */
	k->process = process;
	return k->pod;
}
