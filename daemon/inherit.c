// SPDX-License-Identifier: MIT
/*
 * inherit.c - the thread that holds a GPU of a pool runs at the priority that it inherits from
 * those it keeps waiting.
 *
 * Only a thread under SCHED_FIFO or SCHED_RR is raised: a thread that is not real-time was not
 * trusted with a CPU, and does not become so by holding a GPU. Its own priority comes back when it
 * inherits nothing any more, which the end of the task or of the daemon is too, unless its priority
 * was set again in the meantime.
 *
 * What is raised stands in a journal beside the socket, from before the thread is raised to after
 * it is set back. After a daemon that was killed the next one reads the journal and sets those
 * threads back.
 *
 * May not: decide what is inherited.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inherit.h"

/* Bytes of the journal for one task: a line of six numbers, filled up with spaces. */
#define RECORD 80

static struct {
	char path[128];
	int fd; /* -1: nothing was raised yet */
} journal = { .fd = -1 };

static bool real_time(int policy)
{
	policy &= ~SCHED_RESET_ON_FORK;
	return policy == SCHED_FIFO || policy == SCHED_RR;
}

/* When the thread began, in ticks since the boot; 0: the process has no such thread. */
static unsigned long long began(pid_t process, pid_t thread)
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

/* --- the journal ------------------------------------------------------------------------------ */

/*
 * Anything but a file of our own is left alone: a socket may stand in a folder that others write.
 */
static int open_journal(int flags)
{
	struct stat st;
	int fd = open(journal.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1)
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

/* An empty text: nothing is raised for the task any more. Returns 0 or an errno. */
static int record(const struct task *task, const char *text)
{
	char line[RECORD + 1];
	ssize_t n;

	if (journal.fd < 0 && *text)
		journal.fd = open_journal(O_CREAT);
	if (journal.fd < 0)
		return *text ? errno : 0;
	snprintf(line, sizeof(line), "%-*s\n", RECORD - 1, text);
	n = pwrite(journal.fd, line, RECORD, (off_t)task->id * RECORD);
	return n == RECORD ? 0 : n < 0 ? errno : ENOSPC;
}

static int record_raise(const struct task *task, int before, int raised)
{
	char text[RECORD];

	snprintf(text, sizeof(text), "%d %d %llu %d %d %d", task->pid, task->holder,
		 began(task->pid, task->holder), task->holder_own, before, raised);
	return record(task, text);
}

/* A thread whose priority is another one by now has set it itself. */
static void restore(const char *line)
{
	struct sched_param param;
	int process, thread, own, before, raised, policy;
	unsigned long long start;

	if (sscanf(line, "%d %d %llu %d %d %d", &process, &thread, &start, &own, &before,
		   &raised) != 6 ||
	    process <= 0 || thread <= 0 || !start || began(process, thread) != start)
		return;
	policy = sched_getscheduler(thread);
	if (policy < 0 || !real_time(policy) || sched_getparam(thread, &param) ||
	    (param.sched_priority != before && param.sched_priority != raised) ||
	    param.sched_priority <= own)
		return;
	param.sched_priority = own;
	if (sched_setscheduler(thread, policy, &param))
		fprintf(stderr,
			"rtxgd: thread %d stays at priority %d, which it inherited under the last "
			"daemon: %s; its own is %d\n",
			thread, raised, strerror(errno), own);
}

void inherit_start(const struct daemon *d)
{
	char line[RECORD + 1] = "";
	int fd;

	snprintf(journal.path, sizeof(journal.path), "%s.raised", d->socket_path);
	fd = open_journal(0);
	if (fd < 0)
		return;
	for (off_t at = 0; pread(fd, line, RECORD, at) == RECORD; at += RECORD)
		restore(line);
	close(fd);
	unlink(journal.path);
}

/* --- threads ---------------------------------------------------------------------------------- */

/* It is not raised, or not by us. */
static void forget(struct task *task)
{
	task->holder_raised = 0;
	record(task, "");
}

void inherit_holder(struct task *task, pid_t thread)
{
	forget(task);
	task->holder = thread;
}

void inherit_set(struct daemon *d, struct task *task, uint32_t priority)
{
	struct sched_param param = { 0 };
	int policy, before, wanted, error;

	if (!task->holder)
		return;
	/* A thread of another process, or of another namespace's number, is none of this task's. */
	policy = began(task->pid, task->holder) ? sched_getscheduler(task->holder) : -1;
	if (policy < 0 || !real_time(policy) || sched_getparam(task->holder, &param)) {
		forget(task);
		return;
	}
	before = param.sched_priority;
	if (!task->holder_raised || before != task->holder_raised)
		task->holder_own = before;
	wanted = (int)priority > task->holder_own ? (int)priority : task->holder_own;
	if (wanted > task->holder_own) {
		error = record_raise(task, before, wanted);
		if (error) {
			/* Nothing could set it back after us. */
			d->inherit_error = error;
			return;
		}
	}
	param.sched_priority = wanted;
	if (wanted != before && sched_setscheduler(task->holder, policy, &param)) {
		if (errno != ESRCH)
			d->inherit_error = errno;
		forget(task);
		return;
	}
	if (wanted > task->holder_own)
		task->holder_raised = wanted;
	else
		forget(task);
}

void inherit_stop(struct daemon *d)
{
	for (uint32_t id = 0; id < d->tasks_top; id++)
		if (d->tasks[id].used && d->tasks[id].holder_raised)
			inherit_set(d, &d->tasks[id], 0);
	if (journal.fd >= 0)
		unlink(journal.path);
}
