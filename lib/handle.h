/* SPDX-License-Identifier: MIT */
/*
 * handle.h - what a handle is. Not installed.
 *
 * The files of librtxg, each calling only those above it:
 *
 *   errors.c     errors in words
 *   sys.c        the futex
 *   lock.c       a lock with priority inheritance
 *   process.c    handles belong to a process, which may fork
 *   cpu.c        CPU scheduling of the calling thread, through the module
 *   locate.c     where the daemon's socket is, and starting a daemon
 *   message.c    requests and replies over that socket
 *   transport_*  how a handle reaches its host
 *   host.c       what happens when the host goes
 *   nvrm_gpu.c   channels of our own on an NVIDIA GPU
 *   nvrm_clients.c  which GPUs the process has open, however many handles there are
 *   nvrm.c       timelines: values that a GPU reaches
 *   nvrm_wait.c  waiting for them
 *   nvrm_cuda.c  a stream of the program's CUDA writes them
 *   sync.c       how a completion is seen
 *   launch.c     launch, notify, sync: the fast path, no system call while nothing contends
 *   open.c       a task begins and ends
 *   both.c       a task is changed, or opened on GPU and CPU at once
 *   control.c    administration
 */
#ifndef RTX_LIB_HANDLE_H
#define RTX_LIB_HANDLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rtxg.h"
#include "rtxg/control.h"
#include "rtxg/page.h"
#include "lock.h"
#include "sys.h"
#include "transport.h"

#define LANES	 RTXG_PAGE_LANES
#define LAUNCHES RTXG_LAUNCHES_MAX

enum record_state { RECORD_LAUNCHED, RECORD_NOTIFIED, RECORD_SYNCING, RECORD_DONE };

/* One launch that has not been synced. */
struct record {
	enum record_state state;
	bool fenced;		   /* the page's fence covers it */
	struct rtx_gpu_notify how; /* state NOTIFIED or SYNCING */
	uint64_t of;		   /* which timeline that was; 0: none */
};

struct task_lane {
	/* of the records, and of the client's half of the page's lane */
	struct rtx_lib_lock lock;
	uint32_t head, tail; /* head <= oldest record < tail, modulo LAUNCHES */
	struct record records[LAUNCHES];
	/* the word that the host was told of, and whose; which host, and whether it looks at it */
	volatile uint32_t *fence;
	uint64_t fence_of; /* a timeline; 0: of the program's own */
	uint64_t fence_host;
	bool fence_seen;
	uint64_t waits, wait_ns;
};

struct rtx_gpu {
	uint32_t generation; /* of the process that opened it; see process.c */
	/* RTXG_PAGE_F_*, read once: the page is not ours to trust for policy later */
	uint32_t page_flags;
	struct rtxg_page *page;
	const struct transport *transport;
	/* transport_daemon; the module's descriptor is in socket */
	int socket, doorbell, page_fd;
	uint64_t checked_ns; /* last look whether the host lives */
	uint64_t retry_ns;   /* not before then another attempt to reach a host */
	/* while there is none: since when, how many attempts, and the last one's error */
	uint64_t gone_ns;
	unsigned int retries;
	int retry_error;
	bool managed;
	bool closing;
	uint32_t users; /* threads inside a call that may wait */
	struct task_lane lanes[LANES];

	pthread_mutex_t control; /* of the socket's conversation and of everything below */
	struct rtx_gpu_options options;
	char device[RTXG_NAME_MAX + 1];
	char vgpu[RTXG_NAME_MAX + 1];
	bool vgpu_named; /* by the program; else the host says where it belongs */
	char path[108];	 /* of the daemon's socket */
	uint64_t host_generation;
	struct rtx_gpu *next, *prev; /* all handles of the process, for fork */
};

#endif
