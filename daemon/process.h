/* SPDX-License-Identifier: MIT */
/* process.h - what /proc tells of a process: see process.c. */
#ifndef RTXGD_PROCESS_H
#define RTXGD_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PROCESS_COMM	64u
#define PROCESS_EXE	4096u
#define PROCESS_COMMAND 2048u

/* Each writes "" where the process does not say, or holds the answer up. */
void process_comm(pid_t pid, char comm[PROCESS_COMM]);
void process_exe(pid_t pid, char exe[PROCESS_EXE]);
/*
 * The command line with spaces between the arguments. Bytes that a terminal would act on, or that
 * are not UTF-8, become \xNN. Cut off where the room ends.
 */
void process_command(pid_t pid, char command[PROCESS_COMMAND]);
/*
 * The user whose process it is, who may read all of the above by himself. False: no such process.
 */
bool process_owner(pid_t pid, uid_t *uid);

/*
 * Does /proc hide the processes of others (its mount option hidepid)? *group: who is in that sees
 * all of them; (gid_t)-1: none.
 */
bool process_others_hidden(gid_t *group);

/*
 * When the thread began, in ticks since the boot. 0: the process has no such thread (errno is
 * ESRCH), or it cannot be told now.
 */
unsigned long long process_began(pid_t process, pid_t thread);
/*
 * Is it the thread that began then? Where that cannot be told: does the process have a thread of
 * that number?
 */
bool process_is(pid_t process, pid_t thread, unsigned long long began);

/* Does the process see other cgroups under a name than we do, or hold the answer up? */
bool process_sees_other_cgroups(pid_t pid);

#endif
