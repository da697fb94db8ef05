/* SPDX-License-Identifier: MIT */
/*
 * raised.h - threads that run at a priority which is not their own, interrupts that are sent
 * elsewhere, and their way back: see raised.c.
 */
#ifndef RTXGD_RAISED_H
#define RTXGD_RAISED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "affinity.h"
#include "rtxg_cpu_inherit.h"

/* Places of interrupts in the journal. */
#define RAISED_INTERRUPTS 128u

struct raised_thread {
	pid_t process, thread;
	unsigned long long began; /* of the thread, as process_began() has it */
	int own, raised;	  /* priorities */
	bool reset;		  /* SCHED_RESET_ON_FORK, before it was raised */
	/* The first thread of its process, when it was last looked at; 0: it is that, or none. */
	struct {
		unsigned long long began;
		int priority;
	} first;
};

struct raised_interrupt {
	uint32_t number;
	char name[AFFINITY_NAME]; /* of those who handle it */
	/* As rtxg_keepoff_left() has them. */
	struct rtxg_keepoff_cpus own, moved, wanted;
};

/* rtxgd with this as its only argument is the guard. */
#define RAISED_GUARD "--guard-priorities"

/* Sets back the threads and interrupts that a killed daemon at this socket left. */
void raised_start(const char *socket_path);
/* All is set back. */
void raised_stop(void);
/*
 * Notes, before the thread is raised, what task `id` has it raised for. From TASKS_MAX on: what a
 * thread of the kernel is raised for. 0 or an errno.
 */
int raised_record(uint32_t id, const struct raised_thread *thread);
void raised_forget(uint32_t id);
/*
 * The process has no such thread any more. Where that thread has executed a program it is the
 * first of the process now, and is set back. 0 or an errno.
 */
int raised_gone(const struct raised_thread *thread);
/* As raised_record() and raised_forget(), of an interrupt that is to be sent elsewhere. */
int raised_record_interrupt(uint32_t place, const struct raised_interrupt *interrupt);
void raised_forget_interrupt(uint32_t place);

/* A fixed priority of real time: SCHED_FIFO or SCHED_RR. */
bool raised_real_time(int policy);
/* SCHED_DEADLINE, which comes before all fixed priorities. */
bool raised_deadline(int policy);
/* The thread as it is now, with its policy for raised_set(). False: it has ended. */
bool raised_look(pid_t thread, int *policy, struct rtxg_inherit_setting *now);
/*
 * 0 or an errno. A daemon without CAP_SYS_NICE may raise within its own limits, and cannot take the
 * flag away again.
 */
int raised_set(pid_t thread, int policy, bool reset, int priority);
/* The guard: returns its exit status when the daemon has ended. */
int raised_guard(const char *process);

#endif
