/* SPDX-License-Identifier: MIT */
/* task.h - a task from open to death: see task.c. */
#ifndef RTXGD_TASK_H
#define RTXGD_TASK_H

#include "daemon.h"

/* The vGPU that the request names, or that the rules give. NULL: *error is -ENOENT or -EACCES. */
struct vgpu *task_vgpu(struct connection *c, const struct request *r, char *why, size_t size,
		       int *error);
/* May it have that priority where `limit` is configured? 0 or -EPERM. */
int task_check_priority(const struct connection *c, uint32_t limit, uint32_t wanted, char *why,
			size_t size);
/* What it may set by itself, in that vGPU if it is moved there; NULL: it stays. */
uint32_t task_priority_limit(const struct task *task, const struct vgpu *to);
/*
 * Would a task of this process be refused in the vGPU that the request names or that the rules
 * give, on the GPU that the request names? Makes an account for it in the module only. 0 or a
 * negative errno.
 */
int task_place(struct connection *c, const struct request *r, char *why, size_t size,
	       struct rtxg_refusal *refusal);
/*
 * May a task of this client be on a GPU of that name? An ordinary user's word makes no device. 0,
 * -ENODEV, or -EINPROGRESS: the devices are being listed, and the request has to be served later.
 */
int task_device(struct connection *c, const char *gpu, char *why, size_t size);
/* Opens the connection's task, and replies. fd: the page of a task taken over, else -1. */
int task_open(struct connection *c, const struct request *r, int fd);
/* The caller has checked that the client may change this task. */
int task_set(struct connection *c, struct task *task, const struct request *r, char *why,
	     size_t size, struct rtxg_refusal *refusal);
void task_close(struct daemon *d, struct task *task);
/* What the host has to report of tasks: an argument of host_init(). */
extern const struct host_news task_news;

#endif
