/* SPDX-License-Identifier: MIT */
/*
 * rtxg.h - the C API of librtxg: real-time management of GPU work and of the CPU time that drives
 * it.
 *
 * A GPU task brackets each launch of its own GPU API (CUDA, OpenCL, Vulkan, anything) like this:
 *
 *     rtx_gpu_open(&handle, &options);          once
 *     rtx_gpu_launch(handle, RTX_COMPUTE);      waits until the task may use the engine
 *     cuLaunchKernel(...);                      the program's own launch
 *     rtx_gpu_notify(handle, RTX_COMPUTE, &n);  says how completion will be seen
 *     rtx_gpu_sync(handle, RTX_COMPUTE);        waits for completion, gives the engine on
 *     rtx_gpu_close(handle);                    once
 *
 * The calls and their order are those of Linux-RTXG (2015), table I and figures 2 and 3. Functions
 * return 0 (or a value named below) or a negative errno; nothing is printed unless RTXG_LOG=1
 * stands in the environment, and rtx_strerror() explains the last error of the calling thread in
 * words. Where nothing else is said functions are thread-safe; a handle belongs to the process that
 * opened it: in a forked child every call on it gives -ECHILD, and the child opens its own.
 *
 * Time is in nanoseconds, on CLOCK_MONOTONIC where absolute. Structs that begin with `size` may
 * grow: set it to sizeof, zero the rest (RTX_INIT does both).
 */
#ifndef RTXG_H
#define RTXG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RTX_VERSION_MAJOR 0
#define RTX_VERSION_MINOR 1

#ifdef __cplusplus
#define RTX_INIT(type)                          \
	([] {                                   \
		type rtx_new{};                 \
		rtx_new.size = sizeof(rtx_new); \
		return rtx_new;                 \
	}())
#else
#define RTX_INIT(type) ((type){ .size = sizeof(type) })
#endif

typedef struct rtx_gpu *rtx_gpu_t;

enum rtx_engine {
	RTX_COMPUTE = 0,
	RTX_COPY_IN = 1,  /* host to device */
	RTX_COPY_OUT = 2, /* device to host */
};

struct rtx_gpu_options {
	size_t size;
	/*
	 * which GPU: a name listed by `rtxg limits` ("0", a PCI address, a UUID, "opencl:NAME"); a
	 * name not seen before adds a GPU; NULL = device 0
	 */
	const char *device;
	/* virtual GPU; NULL = $RTXG_VGPU, else the daemon's match rules, else "default" */
	const char *vgpu;
	/* 1..99 inside the vGPU; 0 = $RTXG_PRIORITY, else as configured */
	unsigned int priority;
	uint64_t runtime_ns;  /* GPU time of a job; 0 = $RTXG_RUNTIME_NS, else unknown */
	uint64_t deadline_ns; /* relative; 0 = $RTXG_DEADLINE_NS, else the period */
	uint64_t period_ns;   /* 0 = $RTXG_PERIOD_NS, else sporadic */
	unsigned int flags;   /* RTX_OPEN_* */
};

/* do not start a per-user daemon when none runs: -ECONNREFUSED instead */
#define RTX_OPEN_NO_SPAWN (1u << 0)
/* if no host can be reached: succeed, and let every launch through */
#define RTX_OPEN_UNMANAGED (1u << 1)

/*
 * Registers the calling process's GPU task. Must be first. -ENOENT unknown vGPU, -EACCES not
 * allowed to use it, -ENOSPC no room, -ECONNREFUSED no host, -EINVAL bad option. options may be
 * NULL.
 */
int rtx_gpu_open(rtx_gpu_t *handle, const struct rtx_gpu_options *options);

/*
 * Recommends a device among those of a pool (NULL = all GPUs known): the one whose queue is
 * shortest, by k-FMLP's rule. Writes its name (at most size bytes with the final 0). -ENODEV if
 * there is none, -ENOENT unknown pool, -ENOSPC too long.
 */
int rtx_gpu_device_advice(const char *pool, char *name, size_t size);

/*
 * Takes (and later gives back) one GPU of a pool exclusively under the k-FMLP: FIFO queues,
 * priority inheritance. Waits.
 */
int rtx_gpu_pool_acquire(rtx_gpu_t handle, const char *pool, char *device, size_t size);
int rtx_gpu_pool_release(rtx_gpu_t handle, const char *pool);

/*
 * Waits until the task may launch on the engine. Several launches may be outstanding (at most 32 an
 * engine: -EAGAIN), each needs its sync. No system call if nothing contends. -EINTR by a signal
 * (nothing was taken), -ECHILD, -EPIPE if the host is gone and the policy is closed.
 */
int rtx_gpu_launch(rtx_gpu_t handle, enum rtx_engine engine);

/*
 * As rtx_gpu_launch, until an absolute CLOCK_MONOTONIC time: -ETIMEDOUT. 0 = do not wait for
 * others: -EAGAIN (the host is asked, and has 2 ms to answer).
 */
int rtx_gpu_launch_until(rtx_gpu_t handle, enum rtx_engine engine, uint64_t time_ns);

enum rtx_sync {
	/* the caller knows: rtx_gpu_sync is called when its work has completed */
	RTX_SYNC_CALLER = 0,
	RTX_SYNC_FENCE, /* poll a word that the GPU writes; yields between looks */
	/* sleep until an eventfd or futex word says so: for SCHED_DEADLINE tasks */
	RTX_SYNC_NOTIFY,
	/*
	 * call a function of the caller's that blocks until completion (clFinish,
	 * cuStreamSynchronize)
	 */
	RTX_SYNC_WAIT,
};

/* The word of a stream on an NVIDIA GPU, with an interrupt behind it: see rtxg_nvrm.h. */
typedef struct rtx_timeline *rtx_timeline_t;

struct rtx_gpu_notify {
	size_t size;
	enum rtx_sync how;
	/*
	 * FENCE: done when (int32_t)(*word - value) >= 0. NOTIFY: the same word as a futex, if fd <
	 * 0
	 */
	volatile uint32_t *word;
	uint32_t value;
	/* NOTIFY: eventfd that becomes readable on completion, or -1 */
	int fd;
	int (*wait)(void *arg); /* WAIT: 0 or negative errno */
	void *arg;
	/*
	 * FENCE and NOTIFY: done when this timeline has reached value; word and fd are not looked
	 * at then. NULL = word or fd count.
	 */
	rtx_timeline_t timeline;
	/*
	 * FENCE and NOTIFY: absolute CLOCK_MONOTONIC time at which rtx_gpu_sync gives up: work that
	 * failed on the GPU writes no word. 0 = never
	 */
	uint64_t until_ns;
};

/*
 * Says how the completion of the oldest launch without a notify will be seen. NULL =
 * RTX_SYNC_CALLER. -EPERM without a launch before it, -EALREADY a second time for the same launch,
 * -EINVAL a bad word or descriptor. Under SCHED_DEADLINE a FENCE is turned into NOTIFY by waiting
 * on the word with bounded sleeps, because yielding forfeits the rest of the runtime (Linux-RTXG,
 * section III.D). The kernel module looks at the word, too, where the GPU's interrupt is bound to
 * it (rtxg/irq.h): the next task is then given its permit from the interrupt, before this one has
 * run. It looks at one word for each engine of a handle, so keep to one.
 */
int rtx_gpu_notify(rtx_gpu_t handle, enum rtx_engine engine, const struct rtx_gpu_notify *notify);

/*
 * Waits for the completion of the oldest launch that has not been synced, then accounts it and
 * gives the engine on. -EPERM without a launch (before launch, or a second sync), -EINTR (the
 * launch stays outstanding; sync again), -ETIMEDOUT the notify's until_ns has come (it stays
 * outstanding, too; rtx_gpu_complete ends it without its work's word).
 */
int rtx_gpu_sync(rtx_gpu_t handle, enum rtx_engine engine);

/*
 * As rtx_gpu_sync under RTX_SYNC_CALLER, with the execution time that the GPU API reports (0 =
 * unknown). For layers.
 */
int rtx_gpu_complete(rtx_gpu_t handle, enum rtx_engine engine, uint64_t device_ns);

/*
 * Adds device time of launches completed earlier (profiling information that came late). Never
 * blocks.
 */
int rtx_gpu_account(rtx_gpu_t handle, enum rtx_engine engine, uint64_t device_ns);

/*
 * True if the permit was called back and outstanding work should be drained rather than more
 * launched. No system call.
 */
bool rtx_gpu_revoked(rtx_gpu_t handle, enum rtx_engine engine);

/*
 * True if others wait for the end of what is outstanding, so that it matters to sync as soon as
 * that comes: the permit was called back, or the host wants to hear of each end. No system call.
 */
bool rtx_gpu_awaited(rtx_gpu_t handle, enum rtx_engine engine);

/*
 * Waits until rtx_gpu_revoked becomes true or the time (absolute, UINT64_MAX = for ever) comes: 0
 * or -ETIMEDOUT. For layers that launch ahead without a thread of their own in between.
 */
int rtx_gpu_wait_revoked(rtx_gpu_t handle, enum rtx_engine engine, uint64_t time_ns);

/*
 * Says that some of this program's work passes by without launches: lists then show it as managed
 * in part. For layers that know of a call and cannot hold it back. 0, -EINVAL or -ECHILD. No system
 * call.
 */
int rtx_gpu_ungated(rtx_gpu_t handle);

/*
 * Changes priority, runtime, deadline and period of the task (the other members are not looked at;
 * a 0 stays as it is). -EPERM above what was configured without the privilege, -EINVAL out of
 * range, -ENOTCONN while no host manages the handle.
 */
int rtx_gpu_set(rtx_gpu_t handle, const struct rtx_gpu_options *options);

/*
 * Unregisters; outstanding launches count as complete. The handle is invalid afterwards, also when
 * an error is returned.
 */
int rtx_gpu_close(rtx_gpu_t handle);

struct rtx_gpu_stats {
	size_t size;
	uint64_t launches;
	uint64_t waits; /* launches that had to wait */
	uint64_t wait_ns;
	uint64_t busy_ns;   /* time with a launch outstanding */
	uint64_t device_ns; /* as reported to rtx_gpu_complete */
};
int rtx_gpu_stats(rtx_gpu_t handle, enum rtx_engine engine, struct rtx_gpu_stats *stats);

/*
 * True if a host manages this handle (false: RTX_OPEN_UNMANAGED found none, or the host died and
 * the policy is open).
 */
bool rtx_gpu_managed(rtx_gpu_t handle);

/*
 * The last error of this thread in words: what was wrong, with what value, what to do. "" if there
 * was none.
 */
const char *rtx_strerror(void);

/*
 * Administration, as `rtxg` uses it. A connection to the host; requests and replies are JSON texts,
 * documented in rtxg-protocol(7). The reply must be freed with free(). Returns 0 if the reply says
 * ok; the negative errno that the reply names, with the reply, if it does not; and without a reply
 * (*reply_json NULL) -ECONNREFUSED when no host runs (none is started), -EHOSTDOWN when the kernel
 * module hosts and no daemon speaks for it, or the negative errno of the transport. rtx_strerror()
 * has the words in every case.
 */
int rtx_control(const char *request_json, char **reply_json);

/*
 * Makes sure that somebody answers rtx_control: finds a daemon, or starts the user's own. 0, or a
 * negative errno; -EHOSTDOWN where only root could start one, since the kernel module hosts.
 */
int rtx_host_start(void);

#ifdef __cplusplus
}
#endif

#endif
