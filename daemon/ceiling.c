// SPDX-License-Identifier: MIT
/*
 * ceiling.c - kernel threads of a GPU's driver run at no less than the CPU priority of the programs
 * that wait for their work. The configuration names them (CeilingThreads=); by itself there are
 * none.
 *
 * What the programs give is seen by critical.c. What a thread is set to, the core says
 * (rtxg_cpu_ceiling.h): here the threads are looked for, read and set.
 *
 * Only a thread of the kernel is raised, whatever a program calls itself, and no worker of a
 * workqueue: what it runs next is another driver's. What is raised stands in the journal of
 * raised.c, so that it is set back when the daemon is killed.
 *
 * May not: raise a thread that the configuration does not name; decide to which priority; change a
 * thread's CPUs.
 */
#include <errno.h>
#include <fnmatch.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ceiling.h"
#include "host.h"
#include "process.h"
#include "raised.h"
#include "report.h"
#include "rtxg_cpu_ceiling.h"

#define THREADS_MAX 64u
/* Kernel threads that are looked at with a sample, in less than a millisecond. */
#define LOOKS 32u

/* linux/sched.h, and since 2.6.27 and 2.6.36 in /proc/PID/stat as they are. */
#define PF_WQ_WORKER 0x00000020u
#define PF_KTHREAD   0x00200000u

struct thread {
	pid_t id;
	unsigned long long began;
	struct rtxg_ceiling_thread state;
	bool again; /* could not be set as it should be: the next sample tries it */
};

static struct {
	struct config_words patterns;
	struct thread threads[THREADS_MAX];
	uint32_t count;
	FILE *pass; /* over the kernel's threads; NULL: none is under way */
	uint32_t ceiling;
	int error; /* errno: the thread that was set last could not be given its ceiling */
} ceiling;

/* --- which threads ---------------------------------------------------------------------------- */

/* The name of a thread of the kernel; false: it is none, or a worker. */
static bool kernel_thread(pid_t id, char name[PROCESS_COMM])
{
	char path[64], text[512], *end;
	unsigned int flags;
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", id);
	file = fopen(path, "re");
	if (!file)
		return false;
	size = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[size] = 0;
	/* The name may hold anything; the flags are the seventh value after it. */
	end = strrchr(text, ')');
	if (!end || sscanf(end + 1, " %*c %*s %*s %*s %*s %*s %u", &flags) != 1 ||
	    !(flags & PF_KTHREAD) || flags & PF_WQ_WORKER)
		return false;
	process_comm(id, name);
	return true;
}

static bool named(const char *name)
{
	for (uint32_t i = 0; i < ceiling.patterns.count; i++)
		if (!fnmatch(ceiling.patterns.word[i], name, 0))
			return true;
	return false;
}

static bool known(pid_t id, unsigned long long began)
{
	for (uint32_t i = 0; i < ceiling.count; i++)
		if (ceiling.threads[i].id == id && ceiling.threads[i].began == began)
			return true;
	return false;
}

/* --- their priority --------------------------------------------------------------------------- */

/* The journal's places behind those of the tasks. */
static uint32_t place_of(const struct thread *thread)
{
	return TASKS_MAX + (uint32_t)(thread - ceiling.threads);
}

/* As the kernel counts the policies. */
static const int policies[RTXG_CEILING_POLICIES] = {
	[RTXG_CEILING_OTHER] = -1,
	[RTXG_CEILING_ORDINARY] = SCHED_OTHER,
	[RTXG_CEILING_FIFO] = SCHED_FIFO,
	[RTXG_CEILING_RR] = SCHED_RR,
};

static struct rtxg_ceiling_setting setting_of(int policy, int priority)
{
	for (uint32_t i = RTXG_CEILING_ORDINARY; i < RTXG_CEILING_POLICIES; i++)
		if (policies[i] == (policy & ~SCHED_RESET_ON_FORK))
			return (struct rtxg_ceiling_setting){ i, (uint32_t)priority };
	return (struct rtxg_ceiling_setting){ RTXG_CEILING_OTHER, 0 };
}

/* What could not be set back is not raised. */
static int note(const struct thread *thread, uint32_t raised)
{
	return raised_record(place_of(thread),
			     &(struct raised_thread){ .process = thread->id,
						      .thread = thread->id,
						      .began = thread->began,
						      .own = (int)thread->state.own.priority,
						      .raised = (int)raised });
}

static void forget(const struct thread *thread)
{
	raised_forget(place_of(thread));
}

/* False: the thread has ended. */
static bool set_thread(struct thread *thread)
{
	const bool was = thread->state.raised.priority;
	struct rtxg_ceiling_setting now, wanted;
	struct sched_param param;
	int policy, error;

	policy = process_is(thread->id, thread->id, thread->began) ? sched_getscheduler(thread->id)
								   : -1;
	if (policy < 0 || sched_getparam(thread->id, &param)) {
		if (was)
			forget(thread);
		return false;
	}
	now = setting_of(policy, param.sched_priority);
	thread->again = false;
	if (!rtxg_ceiling_look(&thread->state, ceiling.ceiling, &now, &wanted)) {
		if (was && !thread->state.raised.priority)
			forget(thread);
		return true;
	}
	error = note(thread, rtxg_ceiling_noted(&thread->state, &wanted));
	if (!error) {
		param.sched_priority = (int)wanted.priority;
		if (sched_setscheduler(thread->id,
				       policies[wanted.policy] | (policy & SCHED_RESET_ON_FORK),
				       &param))
			error = errno;
		else
			rtxg_ceiling_set(&thread->state, &wanted);
	}
	if (!thread->state.raised.priority)
		forget(thread);
	else if (!error)
		error = note(thread, thread->state.raised.priority);
	thread->again = error;
	ceiling.error = error;
	return true;
}

/* A raised thread has its place in the journal: places do not move, and are used again. */
static void set_threads(bool all)
{
	for (uint32_t i = 0; i < ceiling.count; i++) {
		struct thread *thread = &ceiling.threads[i];

		if (thread->id && (all || thread->again) && !set_thread(thread))
			*thread = (struct thread){ 0 };
	}
}

static struct thread *free_place(void)
{
	for (uint32_t i = 0; i < ceiling.count; i++)
		if (!ceiling.threads[i].id)
			return &ceiling.threads[i];
	return ceiling.count < THREADS_MAX ? &ceiling.threads[ceiling.count++] : NULL;
}

/* The kernel's threads are the children of its second task. False: the pass is at its end. */
static bool look(uint32_t count)
{
	int id;

	if (!ceiling.pass)
		ceiling.pass = fopen("/proc/2/task/2/children", "re");
	if (!ceiling.pass) {
		ceiling.error = errno;
		return false;
	}
	while (count--) {
		char name[PROCESS_COMM];
		struct thread *thread;
		unsigned long long began;

		if (fscanf(ceiling.pass, "%d", &id) != 1) {
			fclose(ceiling.pass);
			ceiling.pass = NULL;
			return false;
		}
		if (!kernel_thread(id, name) || !named(name))
			continue;
		began = process_began(id, id);
		if (!began || known(id, began))
			continue;
		thread = free_place();
		if (!thread)
			continue;
		*thread = (struct thread){ .id = id, .began = began };
		if (!set_thread(thread))
			thread->id = 0;
	}
	return true;
}

/* --- while such programs are there ------------------------------------------------------------ */

bool ceiling_wanted(void)
{
	return ceiling.patterns.count;
}

void ceiling_next(struct daemon *d)
{
	uint32_t before = ceiling.ceiling;

	if (!ceiling.patterns.count || !d->host->here)
		return;
	ceiling.ceiling = d->ceiling;
	set_threads(ceiling.ceiling != before);
	look(LOOKS);
}

void ceiling_configure(struct daemon *d, const struct config_words *patterns)
{
	if (!memcmp(&ceiling.patterns, patterns, sizeof(*patterns)))
		return;
	ceiling_stop();
	ceiling.patterns = *patterns;
	ceiling.error = 0;
	/* So that the first task finds them known. */
	while (patterns->count && d->host->here && look(LOOKS))
		;
}

void ceiling_stop(void)
{
	ceiling.ceiling = 0;
	set_threads(true);
	ceiling.count = 0;
	if (ceiling.pass)
		fclose(ceiling.pass);
	ceiling.pass = NULL;
}

void ceiling_doctor(const struct daemon *d, json_t *checks)
{
	uint32_t found = 0, raised = 0;

	if (!ceiling.patterns.count || !d->host->here)
		return;
	for (uint32_t i = 0; i < ceiling.count; i++) {
		found += ceiling.threads[i].id != 0;
		raised += ceiling.threads[i].state.raised.priority != 0;
	}
	report_check(
		checks, "ceilings", found && !ceiling.error,
		ceiling.error ? "give rtxgd CAP_SYS_NICE, and let it write beside its socket"
			      : "see the names in /proc/*/comm, and CeilingThreads=",
		"%u kernel threads are named by CeilingThreads=, %u run at a higher priority now "
		"(%u)%s%s",
		found, raised, ceiling.ceiling, ceiling.error ? "; one could not be raised: " : "",
		ceiling.error ? strerrordesc_np(ceiling.error) : "");
}
