/* SPDX-License-Identifier: MIT */
/*
 * assigned.h - which process was put into which vGPU, in a file that outlives the daemon (kill -9
 * too): the next one puts them back, and what they have forked meanwhile. It remembers, and knows
 * nothing of the driver or the policy; what a vGPU is called is the host's affair.
 */
#ifndef RTXG_NV_ASSIGNED_H
#define RTXG_NV_ASSIGNED_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NV_ASSIGNED_MAX	  65536u /* as many as the discovery program follows */
#define NV_ASSIGNED_LABEL 128u
#define NV_ASSIGNED_NONE  UINT32_MAX /* the vGPU of that label does not exist now */

struct nv_assigned_one {
	uint32_t pid, tag;
	/*
	 * of the process, in ticks since the boot: the same pid with another start is another
	 * process
	 */
	uint64_t start;
	/* when it was put there, same clock: children that are older were not put there with it */
	uint64_t since;
	char *label; /* as the host calls the vGPU; only while tag is NV_ASSIGNED_NONE */
};

struct nv_assigned {
	struct nv_assigned_one *one; /* sorted by pid */
	uint32_t count, room;
	bool dirty; /* the file does not say what is in here */
	/* of what is done piece by piece: where the next one begins */
	uint32_t pruned, saved;
	FILE *file; /* that is being written */
	DIR *proc;
	/* what was read of processes in this pass */
	struct nv_kin *kin;
	uint64_t passes;
	bool passing;
	bool births_told; /* as /proc tells them */
};

/*
 * A label for a vGPU's number into text (NV_ASSIGNED_LABEL bytes); false if it has none and is not
 * worth keeping.
 */
typedef bool (*nv_assigned_label)(void *ctx, uint32_t tag, char *text);

void nv_assigned_free(struct nv_assigned *a);
/*
 * The process of that pid was put there now, or (born) was born there. -ESRCH if there is none,
 * -ENOSPC, -ENOMEM.
 */
int nv_assigned_put(struct nv_assigned *a, uint32_t pid, uint32_t tag, bool born);
/* It was born there, at that time since the boot; 0: the process is asked. As nv_assigned_put(). */
int nv_assigned_born(struct nv_assigned *a, uint32_t pid, uint32_t tag, uint64_t birth_ns);
void nv_assigned_remove(struct nv_assigned *a, uint32_t pid);
/*
 * From now on each process is read once, until the pass is over: for many calls of
 * nv_assigned_find() that follow each other at once.
 */
void nv_assigned_pass(struct nv_assigned *a, bool on);
/*
 * Where a process belongs: by its own entry, else by that of the nearest forebear that has one, if
 * that was put there before the child of its on the way was born. NULL: it was not put anywhere.
 * Entries of processes that have ended are dropped on the way.
 */
const struct nv_assigned_one *nv_assigned_find(struct nv_assigned *a, uint32_t pid);
/*
 * Entries for all processes there are that belong somewhere by a forebear. It ends soon after that
 * time (CLOCK_MONOTONIC), and the next call goes on with the next process. True: that was the last
 * one, and the next call begins again.
 */
bool nv_assigned_inherit(struct nv_assigned *a, uint64_t until_ns);
/* Drops the entries of processes that have ended, in the same way. */
bool nv_assigned_prune(struct nv_assigned *a, uint64_t until_ns);
/* Both begin with the first process. */
void nv_assigned_begin(struct nv_assigned *a);

/*
 * Writes a file that replaces the other one in one step when it is whole; only its owner can read
 * it. 1: it ended soon after that time (CLOCK_MONOTONIC), and the next call goes on; 0: it is
 * written, and dirty if something has changed meanwhile; a negative errno: it stays dirty.
 */
int nv_assigned_save(struct nv_assigned *a, const char *path, nv_assigned_label label, void *ctx,
		     uint64_t until_ns);
/* What was begun is given up; the next call begins with the first one. */
void nv_assigned_save_again(struct nv_assigned *a);
/*
 * Reads a file that save() wrote into an empty set; each entry has its label and no tag. -EPERM if
 * another user could have written it, -EINVAL if it is not one (then nothing of it counts),
 * -ENOENT. Entries of processes that have ended are left out.
 */
int nv_assigned_load(struct nv_assigned *a, const char *path);

#endif
