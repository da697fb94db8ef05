/* SPDX-License-Identifier: MIT */
/*
 * transport.h - how a handle reaches its host: the daemon's socket and page, the module's device,
 * or no host at all. Not installed.
 */
#ifndef RTX_LIB_TRANSPORT_H
#define RTX_LIB_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rtx_gpu;
struct rtx_gpu_options;
struct cpu_request;

/*
 * A way to a host. Functions return 0 or a negative errno and leave the words for it in
 * rtx_strerror().
 */
struct transport {
	const char *name;
	/* open and set do the CPU's side too, if it is asked for; cpu may be NULL */
	bool both;
	/*
	 * Registers the task: sets page, doorbell, and the names and flags that the host answered
	 * with.
	 */
	int (*open)(struct rtx_gpu *h, struct cpu_request *cpu);
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
	/*
	 * The device writes how->word when a launch of that lane has completed: 0 or negative
	 * errno, and then the host only believes the page. -EAGAIN: ask again at the next launch.
	 * NULL: it cannot see such words.
	 */
	int (*fence)(struct rtx_gpu *h, unsigned int lane, const struct rtx_gpu_notify *how);
	/*
	 * Sleeps until that word is at the value or past it: 0, -EINTR, -ETIMEDOUT; -EOPNOTSUPP or
	 * -EAGAIN: look at the word yourself. NULL: always.
	 */
	int (*sync)(struct rtx_gpu *h, unsigned int lane, uint32_t value, uint64_t until);
	bool (*alive)(struct rtx_gpu *h);
	int (*set)(struct rtx_gpu *h, const struct rtx_gpu_options *options,
		   struct cpu_request *cpu);
	int (*pool_acquire)(struct rtx_gpu *h, const char *pool, char *device, size_t size);
	int (*pool_release)(struct rtx_gpu *h, const char *pool);
};

extern const struct transport rtx_lib_transport_daemon;
extern const struct transport rtx_lib_transport_module;
extern const struct transport rtx_lib_transport_none;

/* transport_module.c, without a task */
int rtx_lib_module_advice(const char *pool, char *name, size_t size);

#endif
