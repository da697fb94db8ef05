/* SPDX-License-Identifier: MIT */
/*
 * rig.h - what the tests of the NVIDIA lever have in common: programs that use a GPU that is not
 * there, and a lever on the fake driver.
 */
#ifndef RTXG_TESTS_RIG_H
#define RTXG_TESTS_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "contexts.h"
#include "fake_nvidiactl.h"
#include "lever_nvidia.h"

#define MS    1000000ull
#define EPOCH FAKE_EPOCH

/* A setup of cmocka: a driver that has seen nothing. */
int before(void **state);

/* A record of the discovery program: an allocation. */
void record(struct discover_record *r, uint32_t pid, uint32_t client, uint32_t parent,
	    uint32_t object, uint32_t class_id, uint32_t engine, uint32_t cid);

/* Where records go: into_registry() or into_lever(). */
typedef void (*sink)(void *ctx, const struct discover_record *r);

/* What a CUDA process allocates: eight channels for compute, four for a copy engine. */
void cuda_process_on(sink to, void *ctx, uint32_t gpu, uint32_t pid, uint32_t client,
		     uint32_t first_cid, uint32_t tag);

void cuda_process(sink to, void *ctx, uint32_t pid, uint32_t client, uint32_t first_cid,
		  uint32_t tag);

/*
 * If set, a process that is made by these has a memory object with the queues of its channels, laid
 * out as CUDA does it: those of compute first.
 */
extern bool with_queues;
#define QUEUES	 0x5c000017u
#define QUEUE(i) (0x2000u + 0x3000u * (i))
/* That memory of a client. */
struct fake_memory_object *queues_of(uint32_t client);

void into_registry(void *ctx, const struct discover_record *r);

void into_lever(void *ctx, const struct discover_record *r);

/* Is a channel of this client stopped on that GPU? */
bool stopped_on(uint32_t gpu, uint32_t client);

/* What a CUDA process has allocated before the lever comes, on one GPU. */
void older_process(uint32_t pid, uint32_t client, uint32_t gpu, uint32_t base, uint32_t cid);

/* This process ends with its parent, so that a failed test leaves none behind. */
void die_with(pid_t parent);

/* A process that does nothing. The caller kills it. */
pid_t sleeper(void);

extern uint32_t can; /* what the policy may use; 0 = what it uses unless told otherwise */

/* A lever without discovery, adoption and guardian. */
struct lever_nvidia *lever_up(void);

/* The two processes of two_tenants(): pids 100 and 101, clients FIRST and SECOND. */
#define FIRST  0xc1d00010u
#define SECOND 0xc1d00011u
struct lever_nvidia *two_tenants(void); /* 80 and 20 %, vGPUs 1 and 2 */
/*
 * The GPU turns between these two, 2 ms each, as far as they are not stopped. Returns the first
 * one's part of the time, or -1 when the lever has let go.
 */
double turn_for(struct lever_nvidia *l, uint64_t ns);
/* The same of any two processes. */
double turn_of(struct lever_nvidia *l, uint64_t ns, const uint32_t pids[2],
	       const uint32_t clients[2]);
/* What the lever says of a process; it must be in its list. */
struct lever_nvidia_process process_of(struct lever_nvidia *l, uint32_t pid);
/* A record of the discovery program about a process as a whole, or of a free. */
void say(struct lever_nvidia *l, enum discover_kind kind, uint32_t pid, uint32_t client,
	 uint32_t object);

#endif
