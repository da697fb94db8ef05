/* SPDX-License-Identifier: MIT */
/* gate.h - the lever that works with every GPU API: see gate.c. */
#ifndef RTXGD_GATE_H
#define RTXGD_GATE_H

#include "daemon.h"

/* How a decision reaches a GPU. */
struct lever {
	const char *name;
	void (*grant)(struct task *task, uint32_t engine, uint32_t flags, bool anew);
	void (*revoke)(struct task *task, uint32_t engine);
	void (*slice)(struct task *task, uint64_t slice_ns);
	void (*suspend)(struct task *task);
	void (*resume)(struct task *task);
};
extern const struct lever lever_gate;

#endif
