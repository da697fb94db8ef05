/* SPDX-License-Identifier: MIT */
/*
 * message.h - requests as typed values. Everything that comes from a client passes through
 * message_parse, which knows every member's type and range and which request may carry it; what it
 * lets through needs no second look at its form. May not look at the daemon's state.
 */
#ifndef RTXGD_MESSAGE_H
#define RTXGD_MESSAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rtxg/control.h"

#define GPUS_MAX	32u  /* also the most names in a list */
#define RTXG_CGROUP_MAX 511u /* bytes of a cgroup's name */
/* A limit on GPU memory: 1 MiB to 1 PiB. */
#define MESSAGE_MEMORY_MIN (1ll << 20)
#define MESSAGE_MEMORY_MAX (1ll << 50)
/* Why a cap of 0 is refused, here and in files; cli/value.c says the same. */
#define MESSAGE_NO_CAP_OF_0 "under a cap of nothing programs would wait for ever"

/* Members; the bit in request.given says that it was there. */
enum member {
	M_GPU,
	M_VGPU,
	M_POOL,
	M_GPU_POLICY, /* "policy" of a GPU; of a vGPU's tasks: */
	M_POLICY,
	M_OVERRUN, /* strings */
	M_PERIOD,
	M_WINDOW,
	M_BAND_WAIT,
	M_THINK,
	M_REVOKE_TIMEOUT,
	M_AHEAD,
	M_EARLY,
	M_SWITCH, /* integers */
	M_MIN,
	M_MAX,
	M_WEIGHT,
	M_PRIORITY,
	M_TASK_PRIORITY,
	M_RUNTIME,
	M_DEADLINE,
	M_PID,
	M_THREAD,
	M_TASK,
	M_SINCE,
	M_TAKEOVER,
	M_BEGAN,
	M_PAGE,
	M_LATENCY,
	M_QUANTUM,
	M_MEMORY,
	M_TASKS,
	M_FORCE,
	M_TRANSIENT,
	M_PERSIST, /* booleans */
	M_GPUS,	   /* list of strings */
	M_CGROUP,  /* string */
	M_UID,
	M_LANE,
	M_OFFSET, /* integers */
	MEMBERS,
};

#define MESSAGE_BIT(member) (1ull << (member))

/* Members that belong together. */
#define MESSAGE_TASK_PARAMS                                                           \
	(MESSAGE_BIT(M_PRIORITY) | MESSAGE_BIT(M_RUNTIME) | MESSAGE_BIT(M_DEADLINE) | \
	 MESSAGE_BIT(M_PERIOD))
#define MESSAGE_VGPU_PARAMS                                                               \
	(MESSAGE_BIT(M_MIN) | MESSAGE_BIT(M_MAX) | MESSAGE_BIT(M_WEIGHT) |                \
	 MESSAGE_BIT(M_PRIORITY) | MESSAGE_BIT(M_PERIOD) | MESSAGE_BIT(M_POLICY) |        \
	 MESSAGE_BIT(M_TASK_PRIORITY) | MESSAGE_BIT(M_LATENCY) | MESSAGE_BIT(M_QUANTUM) | \
	 MESSAGE_BIT(M_MEMORY))
#define MESSAGE_GPU_PARAMS                                                             \
	(MESSAGE_BIT(M_GPU_POLICY) | MESSAGE_BIT(M_OVERRUN) | MESSAGE_BIT(M_PERIOD) |  \
	 MESSAGE_BIT(M_WINDOW) | MESSAGE_BIT(M_BAND_WAIT) | MESSAGE_BIT(M_THINK) |     \
	 MESSAGE_BIT(M_REVOKE_TIMEOUT) | MESSAGE_BIT(M_AHEAD) | MESSAGE_BIT(M_EARLY) | \
	 MESSAGE_BIT(M_SWITCH))

struct connection;
struct request;

/* One line of the table of requests. */
struct message_op {
	const char *name;
	uint64_t required, optional; /* members */
	void (*handler)(struct connection *c, const struct request *r);
	uint32_t needs; /* the table's owner knows the bits */
};

struct request {
	const struct message_op *op;
	const char *op_name;
	int fd; /* came with it; -1: none */
	uint64_t given;
	char gpu[RTXG_NAME_MAX + 1], vgpu[RTXG_NAME_MAX + 1], pool[RTXG_NAME_MAX + 1];
	/* M_GPU_POLICY: enum rtxg_gpu_policy; M_POLICY: enum rtxg_task_policy */
	uint32_t policy, overrun;
	int64_t period_ns, window_ns, band_wait_ns, think_ns, revoke_timeout_ns, switch_ppm,
		ahead_ns, early_ns;
	int64_t min_ppm, max_ppm, weight, priority, task_priority, runtime_ns, deadline_ns, pid,
		thread, task, since, takeover, began, page, latency_ns, quantum_ns, memory_bytes;
	bool tasks, force, transient, persist;
	char gpus[GPUS_MAX][RTXG_NAME_MAX + 1];
	uint32_t gpus_count;
	char cgroup[RTXG_CGROUP_MAX + 1]; /* cgroup_clean() reads it */
	int64_t uid, lane, offset;
};

static inline bool given(const struct request *r, enum member m)
{
	return r->given >> m & 1u;
}

/*
 * Reads one request; the table `ops` ends with a name of NULL. 0, or a negative errno with a
 * sentence in why. r->op_name is set as soon as the op is known, else "".
 */
int message_parse(const struct message_op *ops, const char *text, size_t size, struct request *r,
		  char *why, size_t why_size);

/* Any text as a JSON string: what is no rtxg_name_character() becomes \\xNN, byte by byte. */
json_t *message_string(const char *text);
/*
 * Names as the protocol accepts them; NULL or what is wrong with it. plain: letters, digits and
 * ._-@ only (vGPUs, pools).
 */
const char *message_name_wrong(const char *name, size_t length, bool plain);

#endif
