/* SPDX-License-Identifier: MIT */
/* config_parse.h - what the configuration files say: see config_parse.c. */
#ifndef RTXGD_CONFIG_PARSE_H
#define RTXGD_CONFIG_PARSE_H

#include <stdio.h>

#include "binding.h"
#include "config_words.h"
#include "daemon.h"
#include "interrupts.h"

enum vgpu_key {
	V_GPU,
	V_MIN,
	V_MAX,
	V_WEIGHT,
	V_PRIORITY,
	V_PERIOD,
	V_POLICY,
	V_TASK_PRIORITY,
	V_LATENCY,
	V_QUANTUM,
	V_MEMORY,
	V_USERS
};
enum gpu_key {
	G_POLICY,
	G_OVERRUN,
	G_PERIOD,
	G_WINDOW,
	G_BAND_WAIT,
	G_THINK,
	G_REVOKE,
	G_AHEAD,
	G_EARLY,
	G_SWITCH
};

/* The bit of a key in `set`. */
#define SET(key) (1u << (key))

struct wanted_vgpu {
	struct vgpu vgpu;
	uint32_t set; /* enum key */
};

struct wanted_cgroup {
	uint32_t vgpu; /* index of its vGPU */
	char name[256];
};

struct wanted_gpu {
	char name[RTXG_NAME_MAX + 1]; /* "*" = all */
	struct rtxg_gpu_params params;
	uint32_t set;
};

struct wanted_pool {
	char name[RTXG_NAME_MAX + 1];
	char gpus[GPUS_MAX][RTXG_NAME_MAX + 1];
	uint32_t count;
};

/* What the files said, before any of it is applied. */
struct config {
	struct daemon *daemon;
	json_t *messages, *changes;
	uint32_t errors;
	const char *path; /* being read */
	FILE *stream;
	unsigned int line;
	unsigned int header; /* line of the section's header */
	unsigned int match_header;
	enum { S_NONE, S_WRONG, S_DAEMON, S_MATCH, S_VGPU, S_GPU, S_POOL } section;
	struct wanted_vgpu *vgpu; /* whose section it is */
	struct wanted_gpu *gpu;
	char pool[RTXG_NAME_MAX + 1];
	bool fail_closed, gpus_by_claim;
	uint64_t idle_exit_ns, tasks_per_user;
	struct config_words ceilings;
	struct interrupts_wanted interrupts;
	struct wanted_vgpu vgpus[VGPUS_MAX];
	uint32_t vgpus_count;
	struct wanted_gpu gpus[GPUS_MAX];
	uint32_t gpus_count;
	struct wanted_pool pools[POOLS_MAX];
	uint32_t pools_count;
	struct match matches[MATCHES_MAX];
	uint32_t matches_count;
	struct wanted_cgroup cgroups[BINDINGS_MAX];
	uint32_t cgroups_count;
};

/* A header: what is between [ and ]. */
void config_section(struct config *c, const char *text);
/* A line of the section that was begun last. */
void config_line(struct config *c, const char *key, const char *value);
/* A sentence for the log, and for the client that asked. error: the configuration is wrong. */
void config_say(struct config *c, bool error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
