// SPDX-License-Identifier: MIT
/*
 * ceiling.c - kernel threads of a GPU's driver run at no less than the CPU priority of the programs
 * that wait for their work. The configuration names them (CeilingThreads=); by itself there are
 * none.
 *
 * It is a ceiling, as launches and waits pass the daemon by: from when a task of a process with a
 * real-time thread is seen until it is gone, whether it waits just then or not. The ceiling is the
 * highest priority of such threads: a user who may have it may take a CPU with it himself.
 *
 * Only a thread of the kernel is raised, whatever a program calls itself, and no worker of a
 * workqueue: what it runs next is another driver's. A thread whose priority is set by another while
 * it is raised keeps that. What is raised stands in the journal of raised.c, so that it is set back
 * when the daemon is killed.
 *
 * May not: raise a thread that the configuration does not name; change a thread's CPUs.
 */
#include <dirent.h>
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

/* Below the kernel's threads that the machine cannot do without. */
#define CEILING_MAX 97
#define THREADS_MAX 64u
/* Kernel threads that are looked at with a sample, in less than a millisecond. */
#define LOOKS 32u
/* Threads of a process that are looked at. */
#define PROCESS_THREADS 512

/* linux/sched.h, and since 2.6.27 and 2.6.36 in /proc/PID/stat as they are. */
#define PF_WQ_WORKER 0x00000020u
#define PF_KTHREAD   0x00200000u

struct thread {
	pid_t id;
	unsigned long long began;
	int policy, own; /* without us */
	int raised;	 /* what it was raised to; 0: was not */
};

static struct {
	char patterns[CEILING_PATTERNS][CEILING_PATTERN + 1];
	uint32_t patterns_count;
	struct thread threads[THREADS_MAX];
	uint32_t count;
	FILE *pass;    /* over the kernel's threads; NULL: none is under way */
	uint32_t next; /* the task that is looked at next */
	int ceiling;
	int error; /* errno: a thread could not be given its ceiling */
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
	for (uint32_t i = 0; i < ceiling.patterns_count; i++)
		if (!fnmatch(ceiling.patterns[i], name, 0))
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

static void forget(struct thread *thread)
{
	if (thread->raised)
		raised_forget(place_of(thread));
	thread->raised = 0;
}

static int set(const struct thread *thread, int policy, int priority)
{
	const struct sched_param param = { .sched_priority = priority };

	return sched_setscheduler(thread->id, policy, &param) ? errno : 0;
}

static int raise_thread(struct thread *thread, int wanted)
{
	const struct raised_thread record = { .process = thread->id,
					      .thread = thread->id,
					      .began = thread->began,
					      .own = thread->own,
					      .raised = wanted };
	/* What could not be set back is not raised. */
	int error = raised_record(place_of(thread), &record);

	if (!error)
		error = set(thread, raised_real_time(thread->policy) ? thread->policy : SCHED_FIFO,
			    wanted);
	if (error && !thread->raised)
		raised_forget(place_of(thread));
	if (!error)
		thread->raised = wanted;
	return error;
}

/* False: the thread has ended. */
static bool set_thread(struct thread *thread)
{
	struct sched_param param;
	int policy, wanted, error = 0;

	policy = process_began(thread->id, thread->id) == thread->began
			 ? sched_getscheduler(thread->id)
			 : -1;
	if (policy < 0 || sched_getparam(thread->id, &param)) {
		forget(thread);
		return false;
	}
	if (thread->raised && param.sched_priority != thread->raised)
		forget(thread);
	if (!thread->raised) {
		if (policy != SCHED_OTHER && !raised_real_time(policy))
			return true;
		thread->policy = policy;
		thread->own = param.sched_priority;
	}
	wanted = ceiling.ceiling > thread->own ? ceiling.ceiling : 0;
	if (wanted == thread->raised)
		return true;
	if (wanted) {
		error = raise_thread(thread, wanted);
	} else {
		error = set(thread, thread->policy, thread->own);
		if (!error)
			forget(thread);
	}
	if (error)
		ceiling.error = error;
	return true;
}

/* A raised thread has its place in the journal: places do not move, and are used again. */
static void set_threads(void)
{
	for (uint32_t i = 0; i < ceiling.count; i++)
		if (ceiling.threads[i].id && !set_thread(&ceiling.threads[i]))
			ceiling.threads[i] = (struct thread){ 0 };
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

/* --- for which programs ----------------------------------------------------------------------- */

/* The highest priority of a real-time thread of that process; 0: it has none. */
static int highest(pid_t pid)
{
	struct sched_param param;
	struct dirent *entry;
	char path[64];
	int found = 0;
	DIR *threads;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	for (int i = 0; threads && i < PROCESS_THREADS && (entry = readdir(threads)); i++) {
		pid_t id = atoi(entry->d_name);

		/* The number 0 would be this thread. */
		if (id > 0 && raised_real_time(sched_getscheduler(id)) &&
		    !sched_getparam(id, &param) && param.sched_priority > found)
			found = param.sched_priority;
	}
	if (threads)
		closedir(threads);
	return found < CEILING_MAX ? found : CEILING_MAX;
}

static void look_at_next_task(struct daemon *d)
{
	for (uint32_t i = 0; i < d->tasks_top; i++) {
		struct task *task = &d->tasks[ceiling.next++ % d->tasks_top];

		if (!task->used)
			continue;
		task->highest = highest(task->pid);
		return;
	}
}

void ceiling_next(struct daemon *d)
{
	int before = ceiling.ceiling;

	if (!ceiling.patterns_count || !d->host->here)
		return;
	look_at_next_task(d);
	ceiling.ceiling = 0;
	for (uint32_t i = 0; i < d->tasks_top; i++)
		if (d->tasks[i].used && d->tasks[i].highest > ceiling.ceiling)
			ceiling.ceiling = d->tasks[i].highest;
	if (ceiling.ceiling != before)
		set_threads();
	look(LOOKS);
}

void ceiling_configure(struct daemon *d, char patterns[][CEILING_PATTERN + 1], uint32_t count)
{
	if (count == ceiling.patterns_count &&
	    !memcmp(ceiling.patterns, patterns, count * sizeof(*patterns)))
		return;
	ceiling_stop(d);
	memcpy(ceiling.patterns, patterns, count * sizeof(*patterns));
	ceiling.patterns_count = count;
	ceiling.error = 0;
	/* So that the first task finds them known. */
	while (count && d->host->here && look(LOOKS))
		;
}

void ceiling_stop(struct daemon *d)
{
	for (uint32_t i = 0; i < d->tasks_top; i++)
		d->tasks[i].highest = 0;
	ceiling.ceiling = 0;
	set_threads();
	ceiling.count = 0;
	if (ceiling.pass)
		fclose(ceiling.pass);
	ceiling.pass = NULL;
}

void ceiling_doctor(const struct daemon *d, json_t *checks)
{
	uint32_t found = 0, raised = 0;

	if (!ceiling.patterns_count || !d->host->here)
		return;
	for (uint32_t i = 0; i < ceiling.count; i++) {
		found += ceiling.threads[i].id != 0;
		raised += ceiling.threads[i].raised != 0;
	}
	report_check(
		checks, "ceilings", found && !ceiling.error,
		ceiling.error ? "give rtxgd CAP_SYS_NICE, and let it write beside its socket"
			      : "see the names in /proc/*/comm, and CeilingThreads=",
		"%u kernel threads are named by CeilingThreads=, %u run at a higher priority now "
		"(%d)%s%s",
		found, raised, ceiling.ceiling, ceiling.error ? "; one could not be raised: " : "",
		ceiling.error ? strerrordesc_np(ceiling.error) : "");
}
