/* SPDX-License-Identifier: MIT */
/*
 * module_picture.h - the daemon's tables as a picture of what there is in rtxg.ko, and what of it
 * those tables have no place for.
 */
#ifndef RTXGD_MODULE_PICTURE_H
#define RTXGD_MODULE_PICTURE_H

#include "host.h"

/* 0 or -ENOMEM. */
int module_picture_begin(void);
/* From now on the first task is seen when it opens. 0 or a negative errno. */
int module_picture_watch(struct daemon *d);
void module_picture_end(void);

/* Draws it again. flags: RTXG_HOST_F_USAGE to bring all accounts up to this moment first. */
void module_picture_draw(struct daemon *d, uint32_t flags);

void module_picture_account(const struct account *account, uint32_t engine,
			    struct rtxg_account_view *view);
/* The account is new: nothing is known of it. */
void module_picture_forget(const struct account *account);
void module_picture_lane(const struct task *task, uint32_t engine, struct lane_view *view);
/* The name of the GPU that a new request to the pool would get; "" is none. */
const char *module_picture_advice(const struct pool *pool);

#endif
