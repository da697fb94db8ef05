// SPDX-License-Identifier: MIT
/*
 * process.c - what /proc tells of a process. rtxgd reads /proc with root's rights: the callers show
 * a user only what that user could read. May not trust a byte of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"
#include "rtxg/name.h"

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

void process_exe(pid_t pid, char exe[PROCESS_EXE])
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", pid);
	n = readlink(path, exe, PROCESS_EXE - 1);
	exe[n > 0 ? n : 0] = 0;
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

unsigned long long process_began(pid_t process, pid_t thread)
{
	char path[64], text[1024];
	unsigned long long ticks = 0;
	const char *end;
	FILE *stat;
	size_t size;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", process, thread);
	stat = fopen(path, "re");
	if (!stat)
		return 0;
	size = fread(text, 1, sizeof(text) - 1, stat);
	fclose(stat);
	text[size] = 0;
	/* The name may hold anything; what follows it is the third value, and this the 22nd. */
	end = strrchr(text, ')');
	if (!end || sscanf(end + 1,
			   " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			   "%*s %*s %llu",
			   &ticks) != 1)
		return 0;
	return ticks;
}

void process_command(pid_t pid, char command[PROCESS_COMMAND])
{
	unsigned char line[PROCESS_COMMAND];
	char path[64];
	ssize_t size = 0;
	size_t at = 0, to = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		size = read(fd, line, sizeof(line));
		close(fd);
	}
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
