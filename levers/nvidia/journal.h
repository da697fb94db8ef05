/* SPDX-License-Identifier: MIT */
/*
 * journal.h - what is suspended now, in memory that outlives the daemon: a memfd which the guardian
 * maps too. An entry is written before the driver is asked to suspend, and wiped only after it was
 * asked to resume, so that at no instant a suspended channel is missing from it.
 */
#ifndef RTXG_NV_JOURNAL_H
#define RTXG_NV_JOURNAL_H

#include <stdint.h>

#define NV_JOURNAL_MAGIC   0x6c6e726au
#define NV_JOURNAL_ENTRIES 4096u

struct nv_journal_entry {
	/* 0 free, else how often the driver was asked to suspend it, or is about to be */
	uint32_t used;
	uint32_t device, client, channel;
};

/*
 * A context whose slice was changed. Short slices are for a context that runs alone; left behind
 * for several, they would spend all their time on switching. So the guardian puts the driver's own
 * slice back. It needs the process's own descriptor for that.
 */
#define NV_JOURNAL_SLICES 1024u

struct nv_journal_slice {
	uint32_t used;
	uint32_t device, client, group, channel;
	uint32_t pid;
	int32_t fd; /* in that process */
	uint32_t reserved;
};

/* The shared memory. */
struct nv_journal_page {
	uint32_t magic, entries;
	/* 1: the guardian has its own client and watches; a negative errno: it could not */
	uint32_t guarded;
	uint32_t high;	   /* no entry at or above this one was ever used */
	uint32_t farewell; /* the daemon ends in order */
	/* times the guardian resumed everything because the daemon hung */
	uint32_t let_go;
	uint64_t heartbeat_ns; /* CLOCK_MONOTONIC of the daemon's last sign of life */
	struct nv_journal_entry entry[NV_JOURNAL_ENTRIES];
	struct nv_journal_slice slice[NV_JOURNAL_SLICES];
};

struct nv_journal {
	struct nv_journal_page *page; /* NULL: no journal is kept (tests) */
	int fd;
};

int nv_journal_create(struct nv_journal *journal);
/* Maps a journal that another process made; checks it first. */
int nv_journal_attach(struct nv_journal *journal, int fd);
void nv_journal_close(struct nv_journal *journal);

/*
 * Notes that the driver was asked to suspend a channel so often and not to let it go since; 0: it
 * has let it go. -ENOSPC when it is full: then nothing may be suspended.
 */
int nv_journal_note(struct nv_journal *journal, uint32_t device, uint32_t client, uint32_t channel,
		    uint32_t times);
/*
 * Notes a changed slice; -ENOSPC when there is no room. A second note for the same group replaces
 * the first.
 */
int nv_journal_slice(struct nv_journal *journal, const struct nv_journal_slice *slice);
/* Drops the note of one group, or with group 0 those of all groups of a process. */
void nv_journal_slice_remove(struct nv_journal *journal, uint32_t pid, uint32_t client,
			     uint32_t group);
unsigned int nv_journal_count(const struct nv_journal *journal);

#endif
