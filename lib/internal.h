/* SPDX-License-Identifier: MIT */
/*
 * internal.h - what the files of librtxg share. Not installed.
 *
 *   task.c       handles, launch, completion: the fast path, no system call while nothing contends
 *   sync.c       notify and sync
 *   host.c       whether the host is there, what happens when it goes, forks
 *   transport_*  how a handle reaches its host: the daemon's socket and page, or the module's
 *                device
 *   locate.c     where the daemon's socket is; starting a daemon
 *   control.c    administration
 *   error.c      errors in words
 */
#ifndef RTXG_LIB_INTERNAL_H
#define RTXG_LIB_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#include "rtxg.h"
#include "rtxg_clock.h"
#include "rtxg/control.h"
#include "rtxg/page.h"

#define LANES	  RTXG_PAGE_LANES
#define LAUNCHES  RTXG_LAUNCHES_MAX
#define NS_PER_S  1000000000ull
#define NS_PER_MS 1000000ull
#define NEVER	  UINT64_MAX

/*
 * How often a handle in use, or a thread that waits, looks whether the host still lives; and tries
 * to reach it again.
 */
#define HOST_CHECK_NS (200 * NS_PER_MS)
#define HOST_RETRY_NS (250 * NS_PER_MS)
/* A launch that shall not wait gives the host this long to answer. */
#define HOST_ANSWER_NS (2 * NS_PER_MS)

enum record_state { RECORD_LAUNCHED, RECORD_NOTIFIED, RECORD_SYNCING, RECORD_DONE };

/* One launch that has not been synced. */
struct record {
	enum record_state state;
	struct rtx_gpu_notify how; /* state NOTIFIED or SYNCING */
};

struct task_lane {
	/* of the records, and of the client's half of the page's lane. Priority inheritance */
	pthread_mutex_t lock;
	struct record records[LAUNCHES];
	uint32_t head, tail; /* head <= oldest record < tail, modulo LAUNCHES */
	uint64_t waits, wait_ns;
};

struct rtx_gpu;

/*
 * A way to a host. Functions return 0 or a negative errno and leave the words for it in
 * rtx_strerror().
 */
struct transport {
	const char *name;
	/*
	 * Registers the task: sets page, doorbell, and the names and flags that the host answered
	 * with.
	 */
	int (*open)(struct rtx_gpu *h);
	/*
	 * The host has died: registers the same page with a new one. Quick: no waiting, no
	 * starting.
	 */
	int (*reopen)(struct rtx_gpu *h);
	void (*close)(struct rtx_gpu *h);
	/* In a forked child: let go of what was inherited, without telling the host. */
	void (*abandon)(struct rtx_gpu *h);
	void (*ring)(struct rtx_gpu *h);
	/*
	 * Waits until *word differs from value, or someone wakes, or the absolute time comes: 0,
	 * -EINTR, -ETIMEDOUT.
	 */
	int (*wait)(struct rtx_gpu *h, unsigned int lane, uint32_t value, uint64_t until);
	/* Wakes the handle's own threads that wait. */
	void (*wake)(struct rtx_gpu *h, unsigned int lane);
	bool (*alive)(struct rtx_gpu *h);
	int (*set)(struct rtx_gpu *h, const struct rtx_gpu_options *options);
	int (*pool_acquire)(struct rtx_gpu *h, const char *pool, char *device, size_t size);
	int (*pool_release)(struct rtx_gpu *h, const char *pool);
};

extern const struct transport rtx_lib_transport_daemon;
extern const struct transport rtx_lib_transport_module;
extern const struct transport rtx_lib_transport_none;

struct rtxg_cpu_task;
/*
 * The CPU's side of a task, to be asked for together with the GPU's: rtx_task_open, rtx_task_set.
 */
struct cpu_request {
	struct rtxg_cpu_task *task;
	const struct rtxg_cpu_task *before; /* set: what it was */
	int file;			    /* of /dev/rtxg, to own it */
	bool done;			    /* the transport did both at once */
	bool refused;			    /* it was this side that was refused */
};

struct rtx_gpu {
	struct cpu_request *cpu; /* while a call for both sides is under way */
	uint32_t generation;	 /* of the process that opened it; see rtx_lib_generation */
	/* RTXG_PAGE_F_*, read once: the page is not ours to trust for policy later */
	uint32_t page_flags;
	struct rtxg_page *page;
	const struct transport *transport;
	/* transport_daemon; the module's descriptor is in socket */
	int socket, doorbell, page_fd;
	uint64_t checked_ns; /* last look whether the host lives */
	uint64_t retry_ns;   /* not before then another attempt to reach a host */
	bool managed;
	bool closing;
	uint32_t users; /* threads inside a call that may wait */
	struct task_lane lanes[LANES];

	pthread_mutex_t control; /* of the socket's conversation and of everything below */
	struct rtx_gpu_options options;
	char device[RTXG_NAME_MAX + 1];
	char vgpu[RTXG_NAME_MAX + 1];
	char path[108]; /* of the daemon's socket */
	uint64_t host_generation;
	struct rtx_gpu *next, *prev; /* all handles of the process, for fork */
};

/* error.c */
int rtx_lib_failed(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rtx_lib_forget_error(void);
const char *rtx_lib_error_name(int error);

/* task.c */
int rtx_lib_open(rtx_gpu_t *handle, const struct rtx_gpu_options *options, struct cpu_request *cpu);
int rtx_lib_set(rtx_gpu_t h, const struct rtx_gpu_options *options, struct cpu_request *cpu);

/* cpu.c: what is not said of the CPU's side is as on the GPU's. */
void rtx_lib_cpu_complete(struct rtxg_cpu_task *task, const struct rtx_gpu_options *gpu);
int rtx_lib_cpu_change(const struct rtxg_cpu_task *task);

/* host.c */
extern const uint32_t *rtx_lib_generation; /* a word that reads as 0 in a forked child */
int rtx_lib_process_init(void);
void rtx_lib_handle_register(struct rtx_gpu *h);
void rtx_lib_handle_unregister(struct rtx_gpu *h);
void rtx_lib_host_check(struct rtx_gpu *h, uint64_t now);

/* locate.c */
int rtx_lib_connect(char path[108]);
int rtx_lib_connect_or_start(char path[108]);
int rtx_lib_connect_path(const char *path);

/* transport_module.c */
bool rtx_lib_module_hosts(void);
int rtx_lib_no_daemon_speaks(void);
int rtx_lib_module_advice(const char *pool, char *name, size_t size);

/* sync.c */
int rtx_lib_sync_check(const struct rtx_gpu_notify *in, struct rtx_gpu_notify *out);
int rtx_lib_sync_wait(struct rtx_gpu *h, const struct rtx_gpu_notify *how);

/* control.c */
int rtx_lib_message_send(int socket, const char *text, size_t size, int fd);
int rtx_lib_message_receive(int socket, char **text, int fds[2], uint64_t until);

/* task.c */
int rtx_lib_check_handle(struct rtx_gpu *h, unsigned int engine);
int rtx_lib_futex_wait(volatile uint32_t *word, uint32_t value, uint64_t until, bool shared);
void rtx_lib_futex_wake(volatile uint32_t *word, bool shared);

#define load(p)		    __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define load_relaxed(p)	    __atomic_load_n((p), __ATOMIC_RELAXED)
#define store(p, v)	    __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

#endif
