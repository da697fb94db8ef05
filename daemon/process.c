// SPDX-License-Identifier: MIT
/*
 * process.c - what /proc tells of a process. rtxgd reads /proc with root's rights: the callers show
 * a user only what that user could read.
 *
 * May not: trust a byte of it; wait for a process that does not answer (patience.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "patience.h"
#include "process.h"
#include "rtxg/name.h"
#include "rtxg_clock.h"

/* What is asked of a process that may hold the answer up. */
struct exe {
	pid_t pid;
	char path[PROCESS_EXE];
};
struct began {
	pid_t process, thread;
	unsigned long long ticks;
};
struct command {
	pid_t pid;
	ssize_t size;
	unsigned char line[PROCESS_COMMAND];
};
struct link {
	pid_t pid;
	ssize_t size;
	char target[64];
};

void process_comm(pid_t pid, char comm[PROCESS_COMM])
{
	char path[64];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, comm, PROCESS_COMM - 1);
		close(fd);
	}
	comm[n > 0 ? n : 0] = 0;
	comm[strcspn(comm, "\n")] = 0;
}

static void read_exe(void *memory)
{
	struct exe *exe = memory;
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", exe->pid);
	n = readlink(path, exe->path, PROCESS_EXE - 1);
	exe->path[n > 0 ? n : 0] = 0;
}

void process_exe(pid_t pid, char exe[PROCESS_EXE])
{
	static const struct patience_call call = { .make = read_exe };
	struct exe asked = { .pid = pid };

	rtx_lib_patience_of(pid, &call, &asked, sizeof(asked));
	strcpy(exe, asked.path);
}

bool process_owner(pid_t pid, uid_t *uid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &st))
		return false;
	*uid = st.st_uid;
	return true;
}

#define HIDDEN_NS 1000000000ull /* what was read may be so old: a list has thousands of rows */

/* "0" and "off" hide nothing. All others hide what a stranger is told here. */
static bool hides(const char *options, gid_t *group)
{
	const char *hide = strstr(options, "hidepid="), *gid = strstr(options, "gid=");

	if (gid && (gid[-1] == ',' || gid[-1] == ' '))
		*group = (gid_t)strtoul(gid + strlen("gid="), NULL, 10);
	return hide && strncmp(hide, "hidepid=0", 9) != 0 && strncmp(hide, "hidepid=off", 11) != 0;
}

struct hidden {
	bool read; /* the rest is so */
	bool others;
	gid_t sees_all;
};

static void read_mounts(void *memory)
{
	struct hidden *hidden = memory;
	char line[1024], at[256];
	FILE *mounts = fopen("/proc/self/mountinfo", "re");

	*hidden = (struct hidden){ .read = mounts, .sees_all = (gid_t)-1 };
	/* The last one at a place is the one that is seen. */
	while (mounts && fgets(line, sizeof(line), mounts)) {
		const char *type = strstr(line, " - proc ");

		if (!type || sscanf(line, "%*s %*s %*s %*s %255s", at) != 1 || strcmp(at, "/proc"))
			continue;
		hidden->sees_all = (gid_t)-1;
		hidden->others = hides(type, &hidden->sees_all);
	}
	if (mounts)
		fclose(mounts);
}

/*
 * The list of mounts is read under a lock of the whole machine, which any user keeps busy who makes
 * copies of a namespace with very many mounts. So it is asked for with patience, and what was known
 * stays where that comes late.
 */
bool process_others_hidden(gid_t *group)
{
	static const struct patience_call call = { .make = read_mounts };
	static struct hidden known = { .others = true, .sees_all = (gid_t)-1 };
	static uint64_t looked;
	struct hidden now = { 0 };

	if (!looked || rtxg_now_ns() >= looked + HIDDEN_NS) {
		if (!rtx_lib_patience((uid_t)-1, &call, &now, sizeof(now)) && now.read)
			known = now;
		looked = rtxg_now_ns();
	}
	*group = known.sees_all;
	return known.others;
}

static void read_began(void *memory)
{
	struct began *began = memory;
	char path[64], text[1024];
	const char *end;
	FILE *stat;
	size_t size;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", began->process, began->thread);
	stat = fopen(path, "re");
	if (!stat)
		return;
	size = fread(text, 1, sizeof(text) - 1, stat);
	fclose(stat);
	text[size] = 0;
	/* The name may hold anything; what follows it is the third value, and this the 22nd. */
	end = strrchr(text, ')');
	if (!end || sscanf(end + 1,
			   " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			   "%*s %*s %llu",
			   &began->ticks) != 1)
		began->ticks = 0;
}

unsigned long long process_began(pid_t process, pid_t thread)
{
	static const struct patience_call call = { .make = read_began };
	struct began asked = { .process = process, .thread = thread };

	errno = -rtx_lib_patience_of(process, &call, &asked, sizeof(asked));
	if (!errno && !asked.ticks)
		errno = ESRCH;
	return asked.ticks;
}

bool process_is(pid_t process, pid_t thread, unsigned long long began)
{
	unsigned long long now = process_began(process, thread);
	char path[64];
	struct stat st;

	if (now || errno == ESRCH)
		return now && now == began;
	/* Which threads a process has is told without a lock of its own. */
	snprintf(path, sizeof(path), "/proc/%d/task/%d", process, thread);
	return !stat(path, &st);
}

static void read_command(void *memory)
{
	struct command *command = memory;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", command->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		command->size = read(fd, command->line, sizeof(command->line));
		close(fd);
	}
}

void process_command(pid_t pid, char command[PROCESS_COMMAND])
{
	static const struct patience_call call = { .make = read_command };
	struct command asked = { .pid = pid };
	const unsigned char *line = asked.line;
	size_t at = 0, to = 0;
	ssize_t size;

	rtx_lib_patience_of(pid, &call, &asked, sizeof(asked));
	size = asked.size;
	while (size > 0 && !line[size - 1])
		size--;
	while (size > 0 && at < (size_t)size && to + 5 < PROCESS_COMMAND) {
		size_t length = rtxg_name_character(line + at, (size_t)size - at);

		/* The end of an argument, and a program's text that was given as one. */
		if (!line[at] || (line[at] >= '\t' && line[at] <= '\r')) {
			command[to++] = ' ';
			at++;
		} else if (length) {
			memcpy(command + to, line + at, length);
			to += length;
			at += length;
		} else {
			to += (size_t)snprintf(command + to, PROCESS_COMMAND - to, "\\x%02x",
					       line[at]);
			at++;
		}
	}
	command[to] = 0;
}

static void read_cgroups(void *memory)
{
	struct link *link = memory;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/cgroup", link->pid);
	link->size = readlink(path, link->target, sizeof(link->target));
}

bool process_sees_other_cgroups(pid_t pid)
{
	static const struct patience_call call = { .make = read_cgroups };
	struct link own = { .pid = getpid() }, theirs = { .pid = pid };

	if (rtx_lib_patience_of(pid, &call, &theirs, sizeof(theirs)))
		return true;
	read_cgroups(&own);
	return own.size > 0 && theirs.size > 0 &&
	       (own.size != theirs.size ||
		memcmp(own.target, theirs.target, (size_t)own.size) != 0);
}
