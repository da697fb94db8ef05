// SPDX-License-Identifier: MIT
/*
 * proc.c - what /proc says of processes: names, and who uses a GPU. It only looks.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "patience.h"
#include "proc.h"
#include "text.h"

/*
 * Device files that stand for a GPU. /dev/nvidiactl alone does not: every tool that lists GPUs
 * opens it.
 */
static bool gpu_device(const char *path)
{
	static const char nvidia[] = "/dev/nvidia";

	if (strncmp(path, "/dev/dri/renderD", 16) == 0 || strcmp(path, "/dev/kfd") == 0)
		return true;
	return strncmp(path, nvidia, sizeof(nvidia) - 1) == 0 &&
	       isdigit((unsigned char)path[sizeof(nvidia) - 1]);
}

/* Libraries that a program maps when it computes with OpenCL or CUDA. */
static const struct {
	const char *mapped, *name;
} gpu_libraries[] = { { "/libOpenCL.so", "libOpenCL" },
		      { "/libpocl", "libpocl" },
		      { "/libcuda.so", "libcuda" } };

static void add_use(struct gpu_user *user, const char *use)
{
	size_t used = strlen(user->uses);

	if (strstr(user->uses, use))
		return;
	snprintf(user->uses + used, sizeof(user->uses) - used, "%s%s", used ? " " : "", use);
}

/* False if the process could not be looked into. */
static bool look_at_descriptors(struct gpu_user *user)
{
	char path[64], target[PATH_MAX];
	struct dirent *entry;
	DIR *directory;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)user->pid);
	directory = opendir(path);
	if (!directory)
		return errno != EACCES && errno != EPERM;
	while ((entry = readdir(directory))) {
		ssize_t length =
			readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);

		if (length <= 0)
			continue;
		target[length] = '\0';
		if (gpu_device(target))
			add_use(user, target);
	}
	closedir(directory);
	return true;
}

static bool look_at_maps(struct gpu_user *user)
{
	char path[64], *line = NULL;
	size_t room = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)user->pid);
	file = fopen(path, "re");
	if (!file)
		return errno != EACCES && errno != EPERM;
	while (getline(&line, &room, file) > 0) {
		for (size_t i = 0; i < sizeof(gpu_libraries) / sizeof(gpu_libraries[0]); i++) {
			if (strstr(line, gpu_libraries[i].mapped))
				add_use(user, gpu_libraries[i].name);
		}
	}
	free(line);
	fclose(file);
	return true;
}

int proc_name(pid_t pid, char *name, size_t size)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	file = fopen(path, "re");
	if (!file || !fgets(name, (int)size, file)) {
		if (file)
			fclose(file);
		return -ESRCH;
	}
	fclose(file);
	name[strcspn(name, "\n")] = '\0';
	text_clean(name);
	return 0;
}

/* The command line, with blanks between its words; "[NAME]" for a process without one. */
static void read_line(struct gpu_user *user)
{
	char path[64];
	size_t length = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)user->pid);
	file = fopen(path, "re");
	if (file) {
		length = fread(user->line, 1, sizeof(user->line) - 1, file);
		fclose(file);
	}
	while (length && !user->line[length - 1])
		length--;
	user->line[length] = '\0';
	for (size_t i = 0; i < length; i++)
		if (!user->line[i])
			user->line[i] = ' ';
	if (!length)
		snprintf(user->line, sizeof(user->line), "[%s]", user->command);
	text_clean(user->line);
}

/*
 * The programs of rtxg that govern a GPU have it open too, and do no work on it. A name is believed
 * only of root's processes.
 */
static bool governs(const struct gpu_user *user)
{
	static const char *const names[] = { "rtxgd", "rtxg-guardian", "rtxg-nvgov", "rtxg-nvprobe",
					     "rtxg-channels" };

	for (size_t i = 0; user->uid == 0 && i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(user->command, names[i]) == 0)
			return true;
	return false;
}

static void look_into(void *memory)
{
	struct gpu_user *user = memory;

	read_line(user);
	user->unseen = !look_at_descriptors(user) || !look_at_maps(user);
}

int proc_gpu_users(struct gpu_users *users)
{
	static const struct patience_call call = { .make = look_into };
	struct dirent *entry;
	DIR *directory = opendir("/proc");

	memset(users, 0, sizeof(*users));
	if (!directory)
		return -errno;
	while ((entry = readdir(directory))) {
		struct gpu_user user = { .pid = atoi(entry->d_name) };
		struct gpu_user *list;
		struct stat status;
		char path[64];

		if (user.pid <= 0 || user.pid == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/%d", (int)user.pid);
		if (stat(path, &status) || proc_name(user.pid, user.command, sizeof(user.command)))
			continue; /* the process has ended */
		user.uid = status.st_uid;
		if (governs(&user))
			continue;
		/* A process that does not answer is one that could not be looked into. */
		if (rtx_lib_patience(user.uid, &call, &user, sizeof(user)) || user.unseen) {
			users->unseen++;
			continue;
		}
		if (!user.uses[0])
			continue;
		list = realloc(users->list, (users->count + 1) * sizeof(*list));
		if (!list) {
			closedir(directory);
			proc_gpu_users_free(users);
			return -ENOMEM;
		}
		users->list = list;
		users->list[users->count++] = user;
	}
	closedir(directory);
	return 0;
}

void proc_gpu_users_free(struct gpu_users *users)
{
	free(users->list);
	memset(users, 0, sizeof(*users));
}

const char *proc_user(uid_t uid)
{
	static char number[24];
	struct passwd *entry = getpwuid(uid);

	if (entry)
		return entry->pw_name;
	snprintf(number, sizeof(number), "%u", uid);
	return number;
}

int proc_own_directory(char *path, size_t size)
{
	ssize_t length = readlink("/proc/self/exe", path, size - 1);
	char *slash;

	if (length <= 0)
		return -errno;
	path[length] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return 0;
}
