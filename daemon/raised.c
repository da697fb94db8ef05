// SPDX-License-Identifier: MIT
/*
 * raised.c - threads that run at a priority which is not their own, interrupts that are sent
 * elsewhere, and their way back. A journal beside the socket says which they are, from before a
 * thread is raised to after it is set back.
 *
 * The guard is a process of this program that has the journal and waits for the daemon's end: the
 * end of a pipe to which it never writes, or that of its first thread. Then it sets back what the
 * journal has. So a thread is
 * set back at once when the daemon is killed, whether another daemon comes or not. The guard is
 * started with the first thread that is raised. Where it was killed too, the next daemon at the
 * same socket sets the threads back. A lock on the journal keeps the two apart: the journal of a
 * daemon that has ended is used once.
 *
 * A thread that executes a program has the number of its process's first thread from then on. So
 * that thread is looked at where a raised one is gone.
 *
 * Places from TASKS_MAX on are those of kernel threads (ceiling.c). Such a thread's way back is the
 * core's to say: what an administrator has set it to stays. So it is with interrupts
 * (interrupts.c), whose records follow those of all threads.
 *
 * May not: raise a thread or send an interrupt elsewhere; decide which.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon.h"
#include "process.h"
#include "program.h"
#include "raised.h"

/* linux/sched.h; sched.h has no name for the policy. */
#define DEADLINE 6
/* Bytes of the journal for one task: a line of eight numbers, filled up with spaces. */
#define RECORD 80
/* Where the records of interrupts begin, behind all places of threads. */
#define INTERRUPTS_AT ((off_t)(TASKS_MAX + 256u) * RECORD)
/* Bytes of one: its number, three sets of CPUs, and its name up to the end of the line. */
#define INTERRUPT_RECORD 1024
/* The guard's descriptors. */
#define GUARD_PIPE    STDIN_FILENO
#define GUARD_JOURNAL 3
#define GUARD_LOOK_MS 500

static struct {
	char path[128];
	int fd;	   /* of the journal; -1: nothing was raised yet */
	int pipe;  /* its other end is the guard's */
	int guard; /* its pidfd; below 0: none */
} raised = { .fd = -1, .pipe = -1, .guard = -1 };

bool raised_real_time(int policy)
{
	policy &= ~SCHED_RESET_ON_FORK;
	return policy == SCHED_FIFO || policy == SCHED_RR;
}

bool raised_deadline(int policy)
{
	return (policy & ~SCHED_RESET_ON_FORK) == DEADLINE;
}

bool raised_look(pid_t thread, int *policy, struct rtxg_inherit_setting *now)
{
	struct sched_param param;

	*policy = sched_getscheduler(thread);
	if (*policy < 0 || sched_getparam(thread, &param))
		return false;
	*now = (struct rtxg_inherit_setting){
		.policy = raised_deadline(*policy)    ? RTXG_INHERIT_DEADLINE
			  : raised_real_time(*policy) ? RTXG_INHERIT_FIXED
						      : RTXG_INHERIT_ORDINARY,
		.priority = (uint32_t)param.sched_priority,
		.reset = *policy & SCHED_RESET_ON_FORK,
	};
	return true;
}

int raised_set(pid_t thread, int policy, bool reset, int priority)
{
	struct sched_param param = { .sched_priority = priority };

	policy &= ~SCHED_RESET_ON_FORK;
	if (!sched_setscheduler(thread, policy | (reset ? SCHED_RESET_ON_FORK : 0), &param))
		return 0;
	if (errno != EPERM || reset)
		return errno;
	return sched_setscheduler(thread, policy | SCHED_RESET_ON_FORK, &param) ? errno : 0;
}

/* --- the way back ----------------------------------------------------------------------------- */

static void set_kernel_back(pid_t thread, int policy, uint32_t own, uint32_t raised,
			    const struct rtxg_inherit_setting *now)
{
	const struct rtxg_ceiling_setting at = { RTXG_CEILING_FIFO, now->priority };
	const struct sched_param param = { .sched_priority = (int)own };

	if (now->policy == RTXG_INHERIT_FIXED && rtxg_ceiling_left(own, raised, &at))
		sched_setscheduler(thread, own ? policy : SCHED_OTHER, &param);
}

static struct rtxg_inherit_thread noted_of(const struct raised_thread *thread)
{
	return (struct rtxg_inherit_thread){ .own = (uint32_t)thread->own,
					     .raised = (uint32_t)thread->raised,
					     .reset = thread->reset };
}

int raised_gone(const struct raised_thread *thread)
{
	const struct rtxg_inherit_thread noted = noted_of(thread);
	struct rtxg_inherit_setting now, before;
	const pid_t first = thread->process;
	int policy, error;

	if (!thread->first.began || !process_is(first, first, thread->first.began) ||
	    !raised_look(first, &policy, &now) ||
	    !rtxg_inherit_executed(&noted, (uint32_t)thread->first.priority, &now, &before))
		return 0;
	error = raised_set(first, policy, before.reset, (int)before.priority);
	return error == ESRCH ? 0 : error;
}

/* 0 or an errno; ESRCH: it is not there any more. */
static int set_thread_back(const struct raised_thread *thread, bool kernel)
{
	const struct rtxg_inherit_thread noted = noted_of(thread);
	struct rtxg_inherit_setting now, before;
	int policy;

	if (!process_is(thread->process, thread->thread, thread->began) ||
	    !raised_look(thread->thread, &policy, &now))
		return ESRCH;
	if (kernel)
		set_kernel_back(thread->thread, policy, noted.own, noted.raised, &now);
	else if (rtxg_inherit_left(&noted, &now, &before))
		return raised_set(thread->thread, policy, before.reset, (int)before.priority);
	return 0;
}

static void set_back(const char *line, bool kernel)
{
	struct raised_thread t = { 0 };
	int reset, error, n;

	/* A daemon of before wrote six numbers. */
	n = sscanf(line, "%d %d %llu %d %d %d %llu %d", &t.process, &t.thread, &t.began, &t.own,
		   &reset, &t.raised, &t.first.began, &t.first.priority);
	if ((n != 6 && n != 8) || t.process <= 0 || t.thread <= 0 || t.own < 0 || t.raised < 0 ||
	    t.first.priority < 0 || !t.began)
		return;
	t.reset = reset;
	error = set_thread_back(&t, kernel);
	if (error == ESRCH)
		error = raised_gone(&t);
	if (error)
		fprintf(stderr,
			"rtxgd: thread %d stays at priority %d, which it inherited under the last "
			"daemon: %s; its own is %d\n",
			t.thread, t.raised, strerror(error), t.own);
}

static void set_interrupt_back(char *line)
{
	char own[AFFINITY_HEX], moved[AFFINITY_HEX], wanted[AFFINITY_HEX], name[AFFINITY_NAME];
	struct rtxg_keepoff_cpus before, at, next, now;
	unsigned int number;
	int names = 0, error;

	/* AFFINITY_HEX */
	if (sscanf(line, "%u %256s %256s %256s %n", &number, own, moved, wanted, &names) != 4 ||
	    !names || !affinity_of_hex(own, &before) || !affinity_of_hex(moved, &at) ||
	    !affinity_of_hex(wanted, &next))
		return;
	line += names;
	line[strcspn(line, "\n")] = 0;
	for (char *end = line + strlen(line); end > line && end[-1] == ' ';)
		*--end = 0;
	if (affinity_name(number, name) || (*name && !affinity_shared(name, line)) ||
	    affinity_get(number, &now) || !rtxg_keepoff_left(&at, &next, &now))
		return;
	error = affinity_set(number, &before);
	if (error)
		fprintf(stderr,
			"rtxgd: interrupt %u (%s) stays where the last daemon had it sent: %s\n",
			number, line, strerror(-error));
}

/* Of a daemon that has ended. What was used once is empty afterwards, or has no name. */
static void use_journal(int fd)
{
	char line[INTERRUPT_RECORD + 1];
	struct stat st;
	off_t at;

	if (flock(fd, LOCK_EX) || fstat(fd, &st) || !st.st_nlink)
		return;
	line[RECORD] = 0;
	for (at = 0; at < INTERRUPTS_AT && pread(fd, line, RECORD, at) == RECORD; at += RECORD)
		set_back(line, at / RECORD >= TASKS_MAX);
	line[INTERRUPT_RECORD] = 0;
	for (at = INTERRUPTS_AT; pread(fd, line, INTERRUPT_RECORD, at) == INTERRUPT_RECORD;
	     at += INTERRUPT_RECORD)
		set_interrupt_back(line);
	if (ftruncate(fd, 0))
		fprintf(stderr, "rtxgd: the journal of raised threads cannot be emptied: %s\n",
			strerror(errno));
}

/* --- the journal ------------------------------------------------------------------------------ */

/*
 * Anything but a file of our own is left alone: a socket may stand in a folder that others write.
 */
static int open_journal(int flags)
{
	struct stat st;
	int fd = open(raised.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);

	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1)
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

/* Without a guard the next daemon sets the threads back: no reason not to raise one. */
static void start_guard(void)
{
	struct program guard = { .path = "/proc/self/exe",
				 .words = { "rtxgd", RAISED_GUARD },
				 .count = 2,
				 .deaf = true };
	char own[16];
	int ends[2];

	if (raised.guard >= 0 && !program_ended(raised.guard))
		return;
	if (raised.guard >= 0)
		close(raised.guard);
	raised.guard = -1;
	if (raised.pipe >= 0)
		close(raised.pipe);
	raised.pipe = -1;
	if (pipe2(ends, O_CLOEXEC))
		return;
	snprintf(own, sizeof(own), "%d", getpid());
	guard.words[2] = own;
	guard.files[0].fd = ends[0];
	guard.files[0].as = GUARD_PIPE;
	guard.files[1].fd = raised.fd;
	guard.files[1].as = GUARD_JOURNAL;
	raised.guard = program_start(&guard, NULL);
	close(ends[0]);
	if (raised.guard < 0) {
		fprintf(stderr, "rtxgd: the guard of raised threads cannot be started: %s\n",
			strerror(-raised.guard));
		/* One that begins all the same must not take this for the daemon's end. */
		(void)!write(ends[1], "", 1);
		close(ends[1]);
	} else {
		raised.pipe = ends[1];
	}
}

static int put(off_t at, int size, const char *text)
{
	char line[INTERRUPT_RECORD + 1];
	ssize_t n;

	snprintf(line, sizeof(line), "%-*s\n", size - 1, text);
	n = pwrite(raised.fd, line, (size_t)size, at);
	return n == size ? 0 : n < 0 ? errno : ENOSPC;
}

/* The journal and its guard are there. 0 or an errno. */
static int need_journal(void)
{
	if (raised.fd < 0)
		raised.fd = open_journal(O_CREAT);
	if (raised.fd < 0)
		return errno;
	start_guard();
	return 0;
}

int raised_record(uint32_t id, const struct raised_thread *thread)
{
	char text[RECORD];
	int error = need_journal();

	if (error)
		return error;
	snprintf(text, sizeof(text), "%d %d %llu %d %d %d %llu %d", thread->process, thread->thread,
		 thread->began, thread->own, thread->reset, thread->raised, thread->first.began,
		 thread->first.priority);
	return put((off_t)id * RECORD, RECORD, text);
}

void raised_forget(uint32_t id)
{
	if (raised.fd >= 0)
		put((off_t)id * RECORD, RECORD, "");
}

static off_t interrupt_at(uint32_t place)
{
	return INTERRUPTS_AT + (off_t)place * INTERRUPT_RECORD;
}

int raised_record_interrupt(uint32_t place, const struct raised_interrupt *interrupt)
{
	char text[INTERRUPT_RECORD], own[AFFINITY_HEX], moved[AFFINITY_HEX], wanted[AFFINITY_HEX];
	int error = need_journal();

	if (error)
		return error;
	affinity_hex(&interrupt->own, own);
	affinity_hex(&interrupt->moved, moved);
	affinity_hex(&interrupt->wanted, wanted);
	snprintf(text, sizeof(text), "%u %s %s %s %s", interrupt->number, own, moved, wanted,
		 interrupt->name);
	return put(interrupt_at(place), INTERRUPT_RECORD, text);
}

void raised_forget_interrupt(uint32_t place)
{
	if (raised.fd >= 0)
		put(interrupt_at(place), INTERRUPT_RECORD, "");
}

void raised_start(const char *socket_path)
{
	int fd;

	snprintf(raised.path, sizeof(raised.path), "%s.raised", socket_path);
	fd = open_journal(0);
	if (fd < 0)
		return;
	use_journal(fd);
	unlink(raised.path);
	close(fd);
}

void raised_stop(void)
{
	if (raised.fd >= 0)
		unlink(raised.path);
}

/* --- the guard -------------------------------------------------------------------------------- */

/*
 * Where threads can have no files of their own (foreign.c), one that closes what a user keeps open
 * ends when that user likes: until then all files of a killed daemon stay open.
 */
static bool first_thread_ended(const char *process)
{
	char path[64], text[128];
	const char *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.12s/stat", process);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	state = strrchr(text, ')');
	return state && (!strncmp(state, ") Z", 3) || !strncmp(state, ") X", 3));
}

int raised_guard(const char *process)
{
	struct sched_param param = { .sched_priority = (int)RTXG_SERVE_HOST };
	struct pollfd daemon = { .fd = GUARD_PIPE, .events = POLLIN };
	struct stat st;
	sigset_t all;

	if (fstat(GUARD_PIPE, &st) || !S_ISFIFO(st.st_mode) || fstat(GUARD_JOURNAL, &st) ||
	    !S_ISREG(st.st_mode)) {
		fputs("rtxgd: " RAISED_GUARD " is how rtxgd starts its own guard\n", stderr);
		return 2;
	}
	/* What ends the daemon, and all that belongs to it, must not end the guard before. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param);
	while (poll(&daemon, 1, GUARD_LOOK_MS) <= 0 && !first_thread_ended(process))
		;
	/* The daemon lives, and says that it has no use for this one. */
	if (daemon.revents & POLLIN)
		return 0;
	use_journal(GUARD_JOURNAL);
	return 0;
}
