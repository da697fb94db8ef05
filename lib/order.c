// SPDX-License-Identifier: MIT
/*
 * order.c - the public calls of rtxg_order.h: opening, and whose turn it is to a host. May not:
 * wait or wake.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "errors.h"
#include "order.h"
#include "sys.h"

static const struct rtx_order_ops *const hosts[RTX_ORDER_HOSTS] = {
	[RTX_ORDER_FUTEX] = &rtx_lib_order_futex_ops,
	[RTX_ORDER_PROTO_1] = &rtx_lib_order_module_ops,
	[RTX_ORDER_PROTO_2] = &rtx_lib_order_module_ops,
	[RTX_ORDER_PROTO_3] = &rtx_lib_order_module_ops,
	[RTX_ORDER_PROTO_4] = &rtx_lib_order_module_ops,
	[RTX_ORDER_PROTO_5] = &rtx_lib_order_module_ops,
	[RTX_ORDER_PROTO_6] = &rtx_lib_order_module_ops,
	[RTX_ORDER_SHARED] = &rtx_lib_order_polled_ops,
	[RTX_ORDER_OPT] = &rtx_lib_order_scheduler_ops,
};

static int check_options(const struct rtx_order_options *options)
{
	if (!options)
		return 0;
	if (options->size < sizeof(*options))
		return rtx_lib_failed(-EINVAL,
				      "options.size is %zu; set it to sizeof(struct "
				      "rtx_order_options)",
				      options->size);
	if ((unsigned int)options->host >= RTX_ORDER_HOSTS)
		return rtx_lib_failed(-EINVAL, "host %u is not known; 0 to %u are accepted",
				      options->host, RTX_ORDER_HOSTS - 1);
	return 0;
}

static void free_order(struct rtx_order *order)
{
	free(order->thread);
	free(order->memory);
	free(order->name);
	free(order);
}

int rtx_lib_order_start(struct rtx_order **out, const struct rtxg_order *core, void *memory,
			char (*names)[RTX_ORDER_NAME], const struct rtx_order_options *options)
{
	uint32_t threads = core->shape.threads;
	struct rtx_order *order = calloc(1, sizeof(*order));
	cpu_set_t cpus;
	int err = check_options(options);

	*out = NULL;
	if (order && !err)
		order->thread = aligned_alloc(RTX_ORDER_LINE, threads * sizeof(*order->thread));
	if (!order || !order->thread) {
		free(order);
		free(memory);
		free(names);
		return err ? err : rtx_lib_failed(-ENOMEM, "no memory for %u threads", threads);
	}
	order->core = *core;
	order->memory = memory;
	order->name = names;
	order->host = options ? options->host : RTX_ORDER_FUTEX;
	order->patience_ns =
		options && options->patience_ns ? options->patience_ns : RTX_ORDER_PATIENCE;
	order->ops = hosts[order->host];
	/* A thread that looks again and again must leave a CPU to whom it waits for. */
	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		order->spinners_max = (uint32_t)CPU_COUNT(&cpus) - 1;
	memset(order->thread, 0, threads * sizeof(*order->thread));
	for (uint32_t t = 0; t < threads; t++) {
		struct rtx_order_thread *thread = &order->thread[t];

		thread->index = t;
		thread->entry = core->start[t] - 1;
		rtx_lib_order_next_entry(order, thread);
		thread->signal = core->signals[t];
		thread->signal_at = thread->signal < core->signals[t + 1]
					    ? core->signal[thread->signal].clock
					    : RTXG_ORDER_MANY;
	}
	err = order->ops->open(order);
	if (err)
		free_order(order);
	else
		*out = order;
	return err;
}

int rtx_order_open(rtx_order_t *order, const char *path, const struct rtx_order_options *options)
{
	struct rtx_order_file file;
	struct rtxg_order core;
	void *memory;
	int err = check_options(options);

	*order = NULL;
	if (err)
		return err;
	err = rtx_lib_order_file_read(&file, path);
	if (!err)
		err = rtx_lib_order_file_load(&file, path, &core, &memory);
	if (err) {
		rtx_lib_failed(err, "%s", file.error);
	} else {
		err = rtx_lib_order_start(order, &core, memory, file.name, options);
		file.name = NULL;
	}
	rtx_lib_order_file_free(&file);
	return err;
}

void rtx_order_close(rtx_order_t order)
{
	if (!order)
		return;
	rtx_lib_order_break(order, &(struct rtxg_order_break){ .kind = RTXG_ORDER_BREAK_CLOSED });
	while (load(&order->users))
		sched_yield();
	order->ops->close(order);
	free_order(order);
}

/* --- a thread's calls ------------------------------------------------------------------------- */

static int find_thread(struct rtx_order *order, unsigned int number,
		       struct rtx_order_thread **thread)
{
	*thread = NULL;
	if (!number || number > order->core.shape.threads)
		return rtx_lib_failed(-ENXIO, "thread %u; the order has threads 1 to %u", number,
				      order->core.shape.threads);
	*thread = &order->thread[number - 1];
	return 0;
}

static int say_broken(struct rtx_order *order)
{
	char text[300];

	rtx_order_broken(order, text, sizeof(text));
	return rtx_lib_failed(-EPIPE, "the order is broken: %s", text);
}

int rtx_order_join(rtx_order_t order, unsigned int number)
{
	struct rtx_order_thread *thread = NULL;
	uint32_t absent = RTX_ORDER_ABSENT;
	int err = find_thread(order, number, &thread);

	if (err)
		return err;
	if (rtx_lib_order_is_broken(order))
		return say_broken(order);
	if (!__atomic_compare_exchange_n(&thread->state, &absent, RTX_ORDER_JOINED, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return rtx_lib_failed(-EBUSY, "thread %u of the order %s", number,
				      absent == RTX_ORDER_ENDED ? "has ended" : "is there already");
	thread->tid = (int32_t)gettid();
	err = order->ops->join ? order->ops->join(order, thread) : 0;
	if (err)
		store(&thread->state, RTX_ORDER_ABSENT);
	return err;
}

static int joined(struct rtx_order *order, unsigned int number, struct rtx_order_thread **thread)
{
	int err = find_thread(order, number, thread);

	if (!err && load_relaxed(&(*thread)->state) != RTX_ORDER_JOINED)
		err = rtx_lib_failed(-EBADFD, "thread %u has not joined the order", number);
	return err;
}

int rtx_order_before(rtx_order_t order, unsigned int number)
{
	struct rtx_order_thread *thread = NULL;
	int err = joined(order, number, &thread);

	if (err)
		return err;
	if (thread->made == RTXG_ORDER_MANY - 1)
		return rtx_lib_failed(-ERANGE, "thread %u made %u accesses, the most that count",
				      number, thread->made);
	if (order->host == RTX_ORDER_FUTEX && thread->made != thread->restricted)
		return 0;
	__atomic_fetch_add(&order->users, 1, __ATOMIC_SEQ_CST);
	err = order->ops->before(order, thread);
	if (err == -EPIPE)
		err = say_broken(order);
	/* From here on the order may be gone. */
	__atomic_fetch_sub(&order->users, 1, __ATOMIC_SEQ_CST);
	return err;
}

int rtx_order_after(rtx_order_t order, unsigned int number)
{
	struct rtx_order_thread *thread = NULL;
	int err = joined(order, number, &thread);

	return err ? err : order->ops->after(order, thread);
}

int rtx_order_leave(rtx_order_t order, unsigned int number)
{
	struct rtx_order_thread *thread = NULL;
	int err = joined(order, number, &thread);

	if (err)
		return err;
	store(&thread->state, RTX_ORDER_ENDED);
	order->ops->leave(order, thread);
	return 0;
}

int rtx_order_broken(rtx_order_t order, char *text, size_t size)
{
	if (!rtx_lib_order_is_broken(order))
		return 0;
	while (load(&order->broken_state) != 2)
		sched_yield();
	rtx_lib_order_break_words(&order->broken, order->name, text, size);
	return 1;
}

int rtx_order_count(rtx_order_t order, struct rtx_order_counts *counts)
{
	struct rtx_order_counts all = { .size = sizeof(all),
					.accesses = rtx_lib_order_moved(order) };
	size_t size = counts->size;

	if (size < sizeof(size) || size > sizeof(all))
		return rtx_lib_failed(-EINVAL,
				      "counts.size is %zu; set it to sizeof(struct "
				      "rtx_order_counts)",
				      size);
	for (uint32_t t = 0; t < order->core.shape.threads; t++) {
		all.restricted += load_relaxed(&order->thread[t].counted);
		all.waits += load_relaxed(&order->thread[t].waits);
		all.sleeps += load_relaxed(&order->thread[t].sleeps);
		all.wakeups += load_relaxed(&order->thread[t].wakeups);
		all.rescues += load_relaxed(&order->thread[t].rescues);
	}
	if (order->ops->count)
		order->ops->count(order, &all);
	memcpy(counts, &all, size);
	counts->size = size;
	return 0;
}
