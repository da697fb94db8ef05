/* SPDX-License-Identifier: MIT */
/*
 * channels.h - the registry: which process owns which clients, channel groups and channels, on
 * which GPU. Fed by what discovery saw or by adoption; read by the actions. It makes no system call
 * and decides nothing.
 *
 * Trust: what is in a record was read out of another process's memory, so a process may lie about
 * itself. It cannot lie about others: a client belongs to the process that was first seen to own
 * it, until it is freed or that process has gone, and records of a client from another process are
 * counted and dropped. That another's client is named first by a liar is found out by `contested`;
 * that another's channel number is, by claims.h.
 */
#ifndef RTXG_NV_CHANNELS_H
#define RTXG_NV_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>
#include "../../bpf/discover.h"
#include "rtxg_slice_part.h"

struct nv_channel {
	uint32_t handle, class_id, engine;
	uint32_t cid;	/* in the log of switches; 0 = not known */
	bool confirmed; /* the driver says that number, too */
	uint32_t userd; /* the client's memory object that holds its USERD; 0 = not known */
	uint64_t userd_offset;
	/* adopted: the memory is known, and the offset only as the so-manieth of the client */
	bool by_place, placed;
	uint16_t place;
	/*
	 * act.c's: how often the driver was asked to stop it since it was let go last. The driver
	 * counts, and has counted this much or less: a call that fails has stopped what its list
	 * names before the entry that it failed at.
	 */
	uint32_t stops;
	/*
	 * demand.c's: what its queue showed last, what the core makes of it, and whether it is seen
	 */
	uint64_t words;
	struct rtxg_slice_queue queue;
	uint16_t page;
	uint8_t sight;
};

struct nv_process;

/*
 * One channel group (a context's work for one engine), or a lone channel outside any group (handle
 * = the channel's).
 */
struct nv_group {
	struct nv_process *process; /* whose it is */
	/*
	 * It is a duplicate of a group of that process, and what works in it is part of that
	 * process's context: a client of MPS has one of its server's. NULL: a group of its own.
	 */
	struct nv_process *host;
	uint32_t of_client, of; /* which of the host's */
	uint32_t client, handle, device, engine;
	bool lone;
	struct nv_channel *channels;
	unsigned int count, room;
};

struct nv_client {
	uint32_t handle;
	int fd;		/* descriptor of the owner on which it was allocated; -1 unknown */
	bool confirmed; /* the driver says that it is this process's */
	struct {
		uint32_t object, instance;
	} device[32];
	unsigned int devices;
};

struct nv_process {
	uint32_t pid, tag;
	char comm[16];
	bool mps_server; /* its one group serves all its clients */
	bool adopted;	 /* found, not seen from the start */
	/* CLOCK_MONOTONIC, when it was last looked for: what it had by then is known */
	uint64_t adopted_ns;
	bool placed; /* tag is where the host says that it belongs: no request put it there */
	struct nv_client *clients;
	unsigned int client_count, client_room;
	struct nv_group *groups;
	unsigned int group_count, group_room;
	/* processes that have duplicates of its groups */
	struct nv_process **guests;
	unsigned int guest_count, guest_room;
	unsigned int channel_count; /* in all groups */
	uint64_t first_ns;	    /* CLOCK_MONOTONIC of the first channel */
	bool missed;		    /* records of it were lost: not all that it has is known */
	uint64_t rescan_again, rescan_pause;
	void *user; /* the host's */
};

/*
 * What one process may have. More is refused: the driver itself has no more than that on a GPU, and
 * a process that says otherwise is not to fill our memory.
 */
#define NV_CHANNELS_MAX 4096u /* also of groups */
#define NV_CLIENTS_MAX	1024u

struct nv_registry {
	struct nv_process **processes;
	unsigned int count, room;
	/* records that named another process's client, or one object too many */
	uint64_t refused;
	uint64_t lost; /* records that never came */
	/*
	 * A record names a client that another process, `owner`, was seen to own. True: it is not
	 * the owner's any more. NULL: who was first is believed.
	 */
	bool (*contested)(void *ctx, const struct nv_process *owner,
			  const struct discover_record *record);
	void *contested_ctx;
};

enum nv_change {
	NV_NOTHING,
	NV_OWN_CONTROL,	 /* `process` itself has issued a control that concerns `group` */
	NV_NEW_CHANNEL,	 /* group `group` of `process` has a channel more */
	NV_GONE_CHANNEL, /* a group or channel of `process` is gone */
	NV_GONE_PROCESS, /* `process` is about to be removed: call nv_registry_drop */
	/*
	 * `process` says that it has duplicated `group`, which is another process's: see whether
	 * that is so, then nv_registry_lend
	 */
	NV_DUPLICATE,
};

struct nv_what {
	enum nv_change change;
	struct nv_process *process;
	struct nv_group *group;
};

void nv_registry_init(struct nv_registry *registry);
void nv_registry_free(struct nv_registry *registry);

/*
 * Takes in one record. what says what changed. 0, or -ENOMEM, -EPERM for a record that names
 * another process's client, -ENOSPC for an object more than a process may have.
 */
int nv_registry_feed(struct nv_registry *registry, const struct discover_record *record,
		     struct nv_what *what);
void nv_registry_drop(struct nv_registry *registry, struct nv_process *process);
/*
 * The group `handle` of the process's client is a duplicate of another process's group; it is made
 * if it is not known. NULL: out of memory, or not that process's client.
 */
struct nv_group *nv_registry_lend(struct nv_process *process, uint32_t client, uint32_t handle,
				  const struct nv_group *of);
/* The process in whose context this one works on that GPU; NULL: it is no guest there. */
struct nv_process *nv_process_host(const struct nv_process *process, uint32_t device);
/*
 * Puts a '?' for each byte that is not UTF-8 or of a character that a terminal obeys: a process
 * chooses its name, and the name goes into logs.
 */
void nv_name_clean(char *comm);

/* The process of that pid; it is made if there is none. NULL: out of memory. */
struct nv_process *nv_registry_note(struct nv_registry *registry, uint32_t pid, const char *comm);
struct nv_process *nv_registry_process(const struct nv_registry *registry, uint32_t pid);
struct nv_process *nv_registry_by_cid(const struct nv_registry *registry, uint32_t device,
				      uint32_t cid);
/* Has it a channel of a compute engine there, in a group of its own? */
bool nv_process_computes(const struct nv_process *process, uint32_t device);
struct nv_client *nv_process_client(const struct nv_process *process, uint32_t client);
/* Is it the group of a compute engine (what a slice or a suspension is for)? */
bool nv_group_is_compute(const struct nv_group *group);

/*
 * Calls back for each compute group that works in the process's context on that GPU: its own, and
 * their duplicates in other processes (guests). Stops, and returns, at what is not 0.
 */
typedef int (*nv_group_fn)(void *ctx, struct nv_group *group);
int nv_process_each(const struct nv_process *process, uint32_t device, nv_group_fn fn, void *ctx);

#endif
