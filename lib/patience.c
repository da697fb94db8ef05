// SPDX-License-Identifier: MIT
/*
 * patience.c - system calls that another user's process may hold up, made in a thread, and not
 * waited for if that sleeps after PATIENCE_NS.
 *
 * Most of what /proc tells of a process, and pidfd_getfd(2), take a lock of that process. While it
 * maps files it holds the lock of its memory, and while it executes a program the one that guards
 * its credentials. Either may last as long as a file system likes that the process itself serves
 * (FUSE): a file that is mapped is written back under the lock. So what a user's process may answer
 * late is not waited for in a thread that serves others.
 *
 * The threads have files of their own. What a thread has taken of a process it may have to close,
 * and the end of a file takes as long as its maker likes. Until then no signal ends the thread, and
 * the files of this process would stay open after its end, if it shared them.
 *
 * A user who has held up a call is not asked for AGAIN_NS. So in each such time a user costs the
 * others as long as one call is waited for, and one thread.
 *
 * May not: hold a lock while a call is made.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "patience.h"
#include "rtxg_clock.h"
#include "subuid.h"

#define PATIENCE_NS   50000000ull
#define AGAIN_LOOK_NS 10000000ull /* it sleeps, and still does then */
#define RUNS_MS	      150u	  /* a call that takes so much of a CPU is held up, too */
#define LOOKS	      4		  /* no thread has had a CPU for it */
#define AGAIN_NS      10000000000ull
#define USERS	      64u /* that are not asked at one time */
#define STACK_BYTES   (128u << 10)

struct job {
	struct job *next;
	const struct patience_call *call;
	uid_t user;
	pid_t thread; /* that makes the call; 0: none does so far */
	bool made;    /* all but the lock */
	bool done, late;
	bool gives, sent; /* sent: what it gives is on its way */
	int given;	  /* or has come; a negative errno: it has not */
	_Alignas(max_align_t) char memory[];
};

static struct {
	uid_t user;
	bool held;	/* a call, still */
	uint64_t until; /* is asked no sooner; 0: this place is free */
} patience_users[USERS];

static pthread_mutex_t patience_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t patience_more = PTHREAD_COND_INITIALIZER;
static pthread_cond_t patience_done;
static pthread_once_t patience_once = PTHREAD_ONCE_INIT;
static struct job *patience_first, **patience_last = &patience_first;
static uint32_t patience_queued, patience_idle;
static pthread_t patience_idler; /* one of those that are idle */
/* What threads give comes over this pair; -1: they share our files. */
static int patience_ours = -1, patience_theirs = -1;

static void begin(void)
{
	pthread_condattr_t attributes;
	int ends[2];

	if (!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
		patience_ours = ends[0];
		patience_theirs = ends[1];
	}
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&patience_done, &attributes);
	pthread_condattr_destroy(&attributes);
}

/* --- who is not asked ------------------------------------------------------------------------- */

/* With the lock. The place of that user, else a free one; -1: there is none. */
static int place_of(uid_t user, uint64_t now)
{
	int place = -1;

	for (int i = 0; i < (int)USERS; i++) {
		if (!patience_users[i].held && patience_users[i].until <= now)
			patience_users[i].until = 0;
		if (!patience_users[i].until)
			place = place < 0 ? i : place;
		else if (patience_users[i].user == user)
			return i;
	}
	return place;
}

static void blame(uid_t user, bool held)
{
	uint64_t now = rtxg_now_ns();
	int place = place_of(user, now);

	if (place < 0)
		return;
	patience_users[place].user = user;
	patience_users[place].held = held;
	patience_users[place].until = now + AGAIN_NS;
}

/* --- descriptors ------------------------------------------------------------------------------ */

union one {
	char room[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

/*
 * A table with the standard files, which are nothing, and this end of the pair. The system calls
 * that change it are made by number: a sanitizer watches the library's calls, and takes equal
 * numbers in two tables for one file.
 */
static bool own_files(void)
{
	int nothing;

	if (patience_theirs < 0 ||
	    syscall(SYS_close_range, patience_theirs + 1, ~0u, CLOSE_RANGE_UNSHARE))
		return false;
	syscall(SYS_close_range, STDERR_FILENO + 1, patience_theirs - 1, 0);
	nothing = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; nothing >= 0 && fd <= STDERR_FILENO; fd++)
		syscall(SYS_dup3, nothing, fd, O_CLOEXEC);
	if (nothing > STDERR_FILENO)
		syscall(SYS_close, nothing);
	return true;
}

/* With the lock, in the thread that has opened it. */
static void give(struct job *job)
{
	int *fd = job->call->gives(job->memory);
	union one control = { { 0 } };
	struct iovec io = { &job, sizeof(struct job *) };
	struct msghdr message = { .msg_iov = &io,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control.room) };
	struct cmsghdr *m = CMSG_FIRSTHDR(&message);

	if (*fd < 0)
		return;
	m->cmsg_level = SOL_SOCKET;
	m->cmsg_type = SCM_RIGHTS;
	m->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(m), fd, sizeof(int));
	job->gives = true;
	job->sent =
		syscall(SYS_sendmsg, patience_theirs, &message, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
	job->given = job->sent ? -EMFILE : -errno;
	syscall(SYS_close, *fd);
	*fd = job->given;
}

/* With the lock: what has come, for this job and for others that wait. */
static void fetch(struct job *job)
{
	while (job->sent) {
		union one control;
		struct job *whose = NULL;
		struct iovec io = { &whose, sizeof(whose) };
		struct msghdr message = { .msg_iov = &io,
					  .msg_iovlen = 1,
					  .msg_control = &control,
					  .msg_controllen = sizeof(control.room) };
		const struct cmsghdr *m;

		if (recvmsg(patience_ours, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0)
			return;
		whose->sent = false;
		/* Without a number for it, it has been closed. */
		m = CMSG_FIRSTHDR(&message);
		if (m && m->cmsg_type == SCM_RIGHTS && m->cmsg_len == CMSG_LEN(sizeof(int)))
			memcpy(&whose->given, CMSG_DATA(m), sizeof(int));
	}
}

/* --- the threads ------------------------------------------------------------------------------ */

static void work_on(struct job *job, bool own)
{
	pthread_mutex_unlock(&patience_lock);
	job->call->make(job->memory);
	__atomic_store_n(&job->made, true, __ATOMIC_RELEASE);
	pthread_mutex_lock(&patience_lock);
	job->done = true;
	if (!job->late) {
		if (own && job->call->gives)
			give(job);
		pthread_cond_broadcast(&patience_done);
		return;
	}
	blame(job->user, false);
	pthread_mutex_unlock(&patience_lock);
	if (job->call->undo)
		job->call->undo(job->memory);
	free(job);
	pthread_mutex_lock(&patience_lock);
}

static void *worker(void *unused)
{
	pid_t thread = (pid_t)syscall(SYS_gettid);
	bool own = own_files();
	struct job *job;

	pthread_mutex_lock(&patience_lock);
	for (;;) {
		job = patience_first;
		if (job) {
			patience_first = job->next;
			if (!patience_first)
				patience_last = &patience_first;
			patience_queued--;
			job->thread = thread;
			work_on(job, own);
		} else if (patience_idle) {
			break; /* one that waits is enough */
		} else {
			patience_idle++;
			patience_idler = pthread_self();
			pthread_cond_wait(&patience_more, &patience_lock);
			patience_idle--;
		}
	}
	pthread_mutex_unlock(&patience_lock);
	return NULL;
}

/*
 * With the lock, which holds the thread back. The call is as urgent as the thread that waits for
 * it. Where that may not be, it takes longer.
 */
static void be_like_us(pthread_t thread)
{
	struct sched_param param;
	int policy = sched_getscheduler(0);

	if (policy >= 0 && !sched_getparam(0, &param))
		pthread_setschedparam(thread, policy & ~SCHED_RESET_ON_FORK, &param);
}

/* With the lock. */
static bool another_worker(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	bool made;

	if (pthread_attr_init(&attributes))
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	made = !pthread_create(&thread, &attributes, worker, NULL);
	pthread_attr_destroy(&attributes);
	if (made)
		be_like_us(thread);
	return made;
}

/* --- the thread that waits -------------------------------------------------------------------- */

/* Does the thread sleep? If not, how much of a CPU has it had, ms; 0 where that cannot be told. */
static bool sleeps(pid_t thread, uint64_t *ran_ms)
{
	unsigned long long user = 0, kernel = 0;
	char path[64], text[512] = "", state = 'R', *end;
	FILE *stat;
	size_t size;

	*ran_ms = 0;
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	stat = fopen(path, "re");
	if (!stat)
		return false;
	size = fread(text, 1, sizeof(text) - 1, stat);
	fclose(stat);
	text[size] = 0;
	end = strrchr(text, ')');
	if (end && sscanf(end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &state,
			  &user, &kernel) == 3)
		*ran_ms = (user + kernel) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
	return state != 'R';
}

static struct timespec at(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u),
				  .tv_nsec = (long)(ns % 1000000000u) };
}

/* With the lock: the job is in the queue, for no thread has had a CPU to take it. */
static void take_out(const struct job *job)
{
	struct job **at = &patience_first;

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
	if (!*at)
		patience_last = at;
	patience_queued--;
}

/* With the lock. 0: it was made. */
static int wait_for(struct job *job)
{
	uint64_t patience = PATIENCE_NS, ran, ran_first = 0;
	bool slept = false, asleep;

	for (int looks = 1; !job->done; looks++) {
		struct timespec end = at(rtxg_now_ns() + patience);
		pid_t thread;

		while (!job->done && !pthread_cond_timedwait(&patience_done, &patience_lock, &end))
			;
		thread = job->thread;
		if (job->done || (!thread && looks < LOOKS))
			continue;
		if (!thread)
			return -EAGAIN;
		pthread_mutex_unlock(&patience_lock);
		asleep = sleeps(thread, &ran);
		pthread_mutex_lock(&patience_lock);
		/* What sleeps then may wait for the lock only. */
		if (job->done || __atomic_load_n(&job->made, __ATOMIC_ACQUIRE))
			continue;
		ran_first = ran_first ? ran_first : ran;
		if ((asleep && slept) || ran - ran_first > RUNS_MS)
			return -ETIMEDOUT;
		slept = asleep;
		patience = asleep ? AGAIN_LOOK_NS : PATIENCE_NS;
	}
	return 0;
}

static struct job *job_for(uid_t user, const struct patience_call *call, const void *memory,
			   size_t size)
{
	struct job *job = malloc(sizeof(*job) + size);

	if (!job)
		return NULL;
	*job = (struct job){ .call = call, .user = user };
	memcpy(job->memory, memory, size);
	return job;
}

void rtx_lib_patience_begin(void)
{
	pthread_once(&patience_once, begin);
}

int rtx_lib_patience(uid_t uid, const struct patience_call *call, void *memory, size_t size)
{
	uid_t user = rtx_lib_subuid_account(uid, NULL);
	struct job *job = job_for(user, call, memory, size);
	uint64_t now = rtxg_now_ns();
	int place, error;

	if (!job)
		return -EAGAIN;
	rtx_lib_patience_begin();
	pthread_mutex_lock(&patience_lock);
	place = place_of(user, now);
	if (place < 0 || patience_users[place].until) {
		pthread_mutex_unlock(&patience_lock);
		free(job);
		return -EBUSY;
	}
	if (patience_queued < patience_idle) {
		be_like_us(patience_idler);
		pthread_cond_signal(&patience_more);
	} else if (!another_worker()) {
		pthread_mutex_unlock(&patience_lock);
		free(job);
		return -EAGAIN;
	}
	*patience_last = job;
	patience_last = &job->next;
	patience_queued++;
	error = wait_for(job);
	if (error == -ETIMEDOUT) {
		job->late = true;
		blame(user, true);
	} else if (error) {
		take_out(job);
	} else if (job->gives) {
		fetch(job);
		*call->gives(job->memory) = job->given;
	}
	pthread_mutex_unlock(&patience_lock);
	if (!error)
		memcpy(memory, job->memory, size);
	if (error != -ETIMEDOUT)
		free(job);
	return error;
}

int rtx_lib_patience_of(pid_t pid, const struct patience_call *call, void *memory, size_t size)
{
	char path[64];
	struct stat st;

	/* This much is told without a lock of the process. */
	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &st))
		return -ESRCH;
	return rtx_lib_patience(st.st_uid, call, memory, size);
}
