/* SPDX-License-Identifier: MIT */
/*
 * module_calls.h - what is asked of rtxg.ko: calls return 0 or a negative errno. If the core in the
 * module refused, daemon.refusal says why, until the next call.
 */
#ifndef RTXGD_MODULE_CALLS_H
#define RTXGD_MODULE_CALLS_H

#include "rtxg/host.h"
#include "host.h"

/* The open device, and the module's numbers of our objects. */
struct module_link {
	int fd;
	uint32_t number[GPUS_MAX]; /* by ours */
	uint64_t *serials;	   /* TASKS_MAX; of tasks, whose numbers are the module's */
};

extern struct module_link module_link;

/* What the module keeps for us with a vGPU or a GPU. */
struct module_cookie {
	bool ours;
	bool bound; /* the vGPU is on that GPU only */
	enum origin origin;
	pid_t pid; /* with which it goes; 0: with none */
};
/* otherwise: the origin of what others have made. */
struct module_cookie module_cookie(uint64_t cookie, enum origin otherwise);

struct rtxg_gpu_params module_gpu_params(const struct rtxg_host_gpu *row);

int module_ask_info(struct rtxg_host_info *info);
/* As struct host. */
int module_ask_gpu(struct daemon *d, struct gpu *gpu, enum verb verb,
		   const struct rtxg_gpu_params *params);
int module_ask_account(struct daemon *d, struct account *account, enum verb verb,
		       const struct rtxg_vgpu_params *params);
int module_ask_pool(struct daemon *d, struct pool *pool, enum verb verb);
/* flags: RTXG_HOST_F_PARAMS, _MOVE, _GIVEN; to: where it is moved, or NULL. */
int module_ask_task(struct daemon *d, const struct task *task, uint32_t flags,
		    const struct rtxg_task_params *params, const struct vgpu *to);
/* Tells the module once more what these are to be; either may be NULL. */
void module_ask_again(struct daemon *d, struct gpu *gpu, struct vgpu *vgpu);
/* The GPU that a task which names none had best use. */
int module_ask_advice(char gpu[RTXG_HOST_NAME]);
/* Becomes the module's front. */
int module_ask_front(struct daemon *d);

#endif
