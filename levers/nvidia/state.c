// SPDX-License-Identifier: MIT
/*
 * state.c - what every file of the lever may use of its state: the log, the clock, the heartbeat,
 * the context of a process.
 */
#include <stdarg.h>
#include <stdio.h>
#include "state.h"

void nv_log(struct lever_nvidia *l, enum lever_nvidia_log level, const char *format, ...)
{
	char line[400];
	va_list args;

	if (!l->ops.log)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	l->ops.log(l->ops.ctx, level, line);
}

uint64_t nv_now(const struct lever_nvidia *l)
{
	return l->sys->now_ns(l->sys->ctx);
}

void nv_breathe(struct lever_nvidia *l)
{
	if (l->ops.breathe)
		l->ops.breathe(l->ops.ctx);
}

void nv_beat(struct lever_nvidia *l)
{
	if (l->journal.page)
		__atomic_store_n(&l->journal.page->heartbeat_ns, nv_now(l), __ATOMIC_RELEASE);
}

struct nv_context *nv_context_of(struct nv_gpu *g, const struct nv_process *p)
{
	for (uint32_t i = 0; i < g->high; i++)
		if (g->context[i].process == p)
			return &g->context[i];
	return NULL;
}
