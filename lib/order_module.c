// SPDX-License-Identifier: MIT
/*
 * order_module.c - the six prototypes of kernel-IRS, in rtxg.ko: 1 to 4 enter the kernel before and
 * after each access, 5 and 6 look at the module's page before an access and enter the kernel if
 * they must wait, and after each access. They are here to be compared with.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "errors.h"
#include "order.h"
#include "sys.h"

struct module {
	int fd;
	struct rtxg_order_page *page;
	size_t size;
};

static int call(const struct module *m, unsigned long command, void *argument)
{
	return ioctl(m->fd, command, argument) < 0 ? -errno : 0;
}

/* Why there is no order in the module, and what helps. */
static int refused(const struct rtx_order *order, int err)
{
	const struct rtxg_order_shape *shape = &order->core.shape;
	const char *host = rtx_order_host_name(order->host);

	switch (err) {
	case -ENOENT:
	case -ENXIO:
	case -ENODEV:
		return rtx_lib_failed(
			err,
			"%s needs rtxg.ko, which is not loaded: `modprobe rtxg` loads "
			"it, `rtxg doctor` says what is missing, and the hosts futex, "
			"shared and opt work without it",
			host);
	case -ENOTTY:
		return rtx_lib_failed(err,
				      "%s needs an rtxg.ko that knows thread order, and the loaded "
				      "one is older than this library: install that of this rtxg",
				      host);
	case -EACCES:
	case -EPERM:
		return rtx_lib_failed(err,
				      "%s needs /dev/rtxg, which this user may not open: join the "
				      "group rtxg, or be root",
				      host);
	case -EDQUOT:
	case -ENOSPC:
		return rtx_lib_failed(-ENOSPC,
				      "%s has a thread of the kernel for each order, and there are "
				      "%u of this user's or %u in all: close some, or take %s",
				      host, RTXG_ORDER_SCHEDULERS_OF_A_USER, RTXG_ORDER_SCHEDULERS,
				      rtx_order_host_name(order->host - 1));
	case -E2BIG:
		return rtx_lib_failed(err,
				      "%s takes orders of %u entries and %u needs, this one has %u "
				      "and %u: the host futex takes more",
				      host, RTXG_ORDER_KERNEL_ENTRIES_MAX,
				      RTXG_ORDER_KERNEL_NEEDS_MAX, shape->entries, shape->needs);
	}
	return rtx_lib_failed(err, "rtxg.ko does not take the order of %u entries for %s: %s",
			      shape->entries, host, strerror(-err));
}

static int load_order(struct rtx_order *order, struct module *m)
{
	const struct rtxg_order_shape *shape = &order->core.shape;
	struct rtxg_order_need *needs = calloc(shape->needs + 1, sizeof(*needs));
	struct rtxg_order_entry *entries = calloc(shape->entries + 1, sizeof(*entries));
	struct rtxg_order_load load_call = {
		.size = sizeof(load_call),
		.prototype = (uint32_t)order->host,
		.threads = shape->threads,
		.entries = shape->entries,
		.needs = shape->needs,
		.entry = (uintptr_t)entries,
		.need = (uintptr_t)needs,
		.accesses = (uintptr_t)order->core.accesses,
	};
	int device = open("/dev/rtxg", O_RDWR | O_CLOEXEC), err = 0;
	uint32_t used = 0;

	if (device < 0 || !needs || !entries) {
		err = device < 0 ? -errno : -ENOMEM;
	} else {
		/* Tables stand by thread; needs are to lie as their entries do. */
		for (uint32_t e = 0; e < shape->entries; e++) {
			entries[e] = order->core.entry[e];
			for (uint32_t i = 0; i < entries[e].count; i++)
				needs[used + i] = order->core.need[entries[e].first + i];
			entries[e].first = used;
			used += entries[e].count;
		}
		m->fd = ioctl(device, RTXG_IOC_ORDER_LOAD, &load_call);
		err = m->fd < 0 ? -errno : 0;
	}
	if (device >= 0)
		close(device);
	free(needs);
	free(entries);
	return err ? refused(order, err) : 0;
}

static int module_open(struct rtx_order *order)
{
	struct module *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return rtx_lib_failed(-ENOMEM, "no memory for the module's order");
	err = load_order(order, m);
	if (err) {
		free(m);
		return err;
	}
	m->size = sizeof(*m->page) + order->core.shape.threads * sizeof(m->page->thread[0]);
	m->page = mmap(NULL, m->size, PROT_READ, MAP_SHARED, m->fd, 0);
	if (m->page == MAP_FAILED) {
		err = rtx_lib_failed(-errno, "the order's page cannot be mapped: %s",
				     strerror(errno));
		close(m->fd);
		free(m);
		return err;
	}
	order->private = m;
	return 0;
}

static void module_close(struct rtx_order *order)
{
	struct module *m = order->private;

	munmap(m->page, m->size);
	close(m->fd);
	free(m);
}

static struct rtxg_order_thread_call thread_call(const struct rtx_order_thread *thread)
{
	return (struct rtxg_order_thread_call){ .size = sizeof(struct rtxg_order_thread_call),
						.thread = thread->index };
}

static int module_join(struct rtx_order *order, struct rtx_order_thread *thread)
{
	struct rtxg_order_thread_call join = thread_call(thread);
	int err = call(order->private, RTXG_IOC_ORDER_JOIN, &join);

	if (err == -EUSERS)
		return rtx_lib_failed(err,
				      "the module does not take thread %u: the calling thread has "
				      "joined %u times, and is to leave an order first",
				      thread->index + 1, RTXG_ORDER_PLACES_MAX);
	return err ? rtx_lib_failed(err, "the module does not take thread %u: %s",
				    thread->index + 1, strerror(-err))
		   : 0;
}

/* The module knows why the order is broken. */
static void ask_why(struct rtx_order *order)
{
	struct rtxg_order_stats stats = { .size = sizeof(stats) };

	if (!call(order->private, RTXG_IOC_ORDER_STATS, &stats) && stats.broken.kind)
		rtx_lib_order_break(order, &stats.broken);
}

/* 5 and 6: what the page says. */
static bool page_lets(const struct rtx_order *order, const struct rtx_order_thread *thread)
{
	const struct module *m = order->private;

	return thread->made != thread->restricted || load(&m->page->broken) ||
	       !rtxg_order_unmet(&order->core, thread->entry, &m->page->thread[0].clock,
				 sizeof(m->page->thread[0]) / sizeof(uint32_t));
}

static int module_before(struct rtx_order *order, struct rtx_order_thread *thread)
{
	struct rtxg_order_wait wait = { .size = sizeof(wait),
					.thread = thread->index,
					.patience_ns = order->patience_ns };
	struct module *m = order->private;
	int err;

	rtx_lib_order_count(&thread->counted, thread->made == thread->restricted);
	if (order->host >= RTX_ORDER_PROTO_5 && page_lets(order, thread)) {
		if (!load(&m->page->broken))
			return 0;
		ask_why(order);
		return -EPIPE;
	}
	do
		err = call(m, RTXG_IOC_ORDER_CONTEXT_SWITCH, &wait);
	while (err == -EINTR);
	if (err == -EPIPE)
		ask_why(order);
	return err && err != -EPIPE ? rtx_lib_failed(err, "thread %u cannot wait in the module: %s",
						     thread->index + 1, strerror(-err))
				    : err;
}

static int module_after(struct rtx_order *order, struct rtx_order_thread *thread)
{
	struct rtxg_order_thread_call done = thread_call(thread);
	bool signals = order->host == RTX_ORDER_PROTO_1 || order->host == RTX_ORDER_PROTO_3;
	int err = call(order->private,
		       signals ? RTXG_IOC_ORDER_SIGNAL_ALL : RTXG_IOC_ORDER_SET_CLOCK, &done);

	if (thread->made == thread->restricted)
		rtx_lib_order_next_entry(order, thread);
	store_relaxed(&thread->clock, ++thread->made);
	return err ? rtx_lib_failed(err, "thread %u: the module does not count its access: %s",
				    thread->index + 1, strerror(-err))
		   : 0;
}

static void module_leave(struct rtx_order *order, struct rtx_order_thread *thread)
{
	struct rtxg_order_thread_call leave = thread_call(thread);

	call(order->private, RTXG_IOC_ORDER_LEAVE, &leave);
}

/* The order was broken on this side only if it is closed: who waits in the kernel holds it. */
static void module_let_go(struct rtx_order *order)
{
	struct rtxg_order_thread_call all = { .size = sizeof(all), .thread = RTXG_ORDER_MANY };

	call(order->private, RTXG_IOC_ORDER_LEAVE, &all);
}

static void module_count(struct rtx_order *order, struct rtx_order_counts *counts)
{
	struct rtxg_order_stats stats = { .size = sizeof(stats) };

	if (call(order->private, RTXG_IOC_ORDER_STATS, &stats))
		return;
	counts->context_switches = stats.context_switches;
	counts->signals = stats.signals;
	counts->clocks = stats.clocks;
	counts->waits = counts->sleeps = stats.waits;
	counts->wakeups = stats.wakeups;
}

const struct rtx_order_ops rtx_lib_order_module_ops = {
	.open = module_open,
	.close = module_close,
	.join = module_join,
	.before = module_before,
	.after = module_after,
	.leave = module_leave,
	.let_go = module_let_go,
	.count = module_count,
};
