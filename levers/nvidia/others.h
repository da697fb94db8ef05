/* SPDX-License-Identifier: MIT */
/* others.h - the lever's system calls on the processes of others: see others.c. */
#ifndef RTXG_NV_OTHERS_H
#define RTXG_NV_OTHERS_H

#include "rm.h"

/*
 * nv_sys_linux, but no process of another user holds a call up for long: -EBUSY or -ETIMEDOUT where
 * one does. For one thread.
 */
const struct nv_sys *nv_sys_patient(void);

#endif
