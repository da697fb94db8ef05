// SPDX-License-Identifier: MIT
/*
 * undo.c - puts settings back. A process of its own, in a session of its own, holds the old values
 * and the reading end of a pipe. Whatever ends the run closes the pipe: an orderly end, a signal,
 * or SIGKILL. One path serves them all. May not: change a setting before its old value is in the
 * pipe.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "undo.h"

#define TEXT_MOST 1024
#define ENTRIES	  4096

struct undo_entry {
	char path[TEXT_MOST];
	char value[TEXT_MOST];
};

static int undo_pipe = -1;
static pid_t undo_keeper;

static int write_text(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret = 0;
	size_t length = strlen(value);

	if (fd < 0)
		return -errno;
	if (write(fd, value, length) != (ssize_t)length)
		ret = errno ? -errno : -EIO;
	close(fd);
	return ret;
}

int undo_read_line(const char *path, char *line, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, line, size - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return (int)n;
	line[n] = 0;
	line[strcspn(line, "\n")] = 0;
	return (int)strlen(line);
}

static bool read_entry(int fd, struct undo_entry *entry)
{
	size_t have = 0;

	while (have < sizeof(*entry)) {
		ssize_t n = read(fd, (char *)entry + have, sizeof(*entry) - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		have += (size_t)n;
	}
	return true;
}

static int keep(int fd)
{
	struct undo_entry *entries = calloc(ENTRIES, sizeof(*entries));
	int count = 0, failed = 0;

	setsid();
	for (int i = 1; i < 32; i++)
		if (i != SIGKILL && i != SIGSTOP && i != SIGCHLD)
			signal(i, SIG_IGN);
	for (int i = 3; i < 1024; i++)
		if (i != fd)
			close(i);
	if (!entries)
		return 1;
	while (count < ENTRIES && read_entry(fd, &entries[count]))
		count++;
	while (count--) {
		const struct undo_entry *e = &entries[count];
		int ret = write_text(e->path, e->value);
		char now[TEXT_MOST];

		/* what refused the change, too, is as before */
		if (!ret ||
		    (undo_read_line(e->path, now, sizeof(now)) >= 0 && !strcmp(now, e->value)))
			continue;
		fprintf(stderr, "rtxg latency: %s could not be set back to %s: %s\n", e->path,
			e->value, strerror(-ret));
		failed++;
	}
	return failed > 100 ? 100 : failed;
}

static int start(void)
{
	int ends[2];

	if (undo_pipe >= 0)
		return 0;
	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	undo_keeper = fork();
	if (undo_keeper < 0) {
		int ret = -errno;

		close(ends[0]);
		close(ends[1]);
		return ret;
	}
	if (!undo_keeper) {
		close(ends[1]);
		_exit(keep(ends[0]));
	}
	close(ends[0]);
	undo_pipe = ends[1];
	return 0;
}

static int send_entry(const struct undo_entry *entry)
{
	/* more than PIPE_BUF would not matter: there is one writer */
	ssize_t n = write(undo_pipe, entry, sizeof(*entry));

	return n == (ssize_t)sizeof(*entry) ? 0 : n < 0 ? -errno : -EIO;
}

int undo_write(const char *path, const char *value)
{
	static struct undo_entry entry;
	int ret;

	memset(&entry, 0, sizeof(entry));
	if (strlen(path) >= TEXT_MOST || strlen(value) >= TEXT_MOST)
		return -ENAMETOOLONG;
	strcpy(entry.path, path);
	ret = undo_read_line(path, entry.value, sizeof(entry.value));
	if (ret < 0)
		return ret;
	if (!strcmp(entry.value, value))
		return 0;
	ret = start();
	if (!ret)
		ret = send_entry(&entry);
	return ret ? ret : write_text(path, value);
}

int undo_all(void)
{
	int status = 0;

	if (undo_pipe < 0)
		return 0;
	close(undo_pipe);
	undo_pipe = -1;
	while (waitpid(undo_keeper, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
