/* SPDX-License-Identifier: GPL-2.0-only */
/* objects.h - the host's GPUs, vGPUs and pools by name: see objects.c. */
#ifndef RTXG_KMOD_OBJECTS_H
#define RTXG_KMOD_OBJECTS_H

#include "host.h"

/*
 * Begins and ends a call that may be refused by the core: HOST_REFUSAL on that file tells. These
 * take objects.
 */
void rtxg_host_begin(void);
void rtxg_host_end(struct rtxg_file *file);

/* objects is held for all that follow */

int rtxg_host_event(const struct rtxg_event *event);
/* What a call of the machine answered, for the caller's HOST_REFUSAL; returns it. */
int rtxg_host_answered(int err);
int rtxg_host_find_gpu(const char *name);
int rtxg_host_get_gpu(const char *name, bool automatic);
struct khost_account *rtxg_host_find_account(u32 gpu, const char *name);
struct khost_account *rtxg_host_new_account(u32 gpu, const char *name,
					    const struct rtxg_vgpu_params *params);
/* Nothing was put on it, or that has gone: a GPU that was made for a task goes. */
void rtxg_host_drop_automatic_gpu(u32 gpu);
/* The last task has left: what was made for it goes. */
void rtxg_host_drop_automatic(struct khost_account *account);
/* After moves, which happen where nothing can be removed. */
void rtxg_host_sweep(void);
int rtxg_host_find_pool(const char *name);

/* Needs no lock. An empty name becomes the other one, if there is another one. */
bool rtxg_host_good_name(char name[RTXG_HOST_NAME], const char *otherwise);

#endif
