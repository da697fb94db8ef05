/* SPDX-License-Identifier: MIT */
/* control.h - what the requests do: see control.c. */
#ifndef RTXGD_CONTROL_H
#define RTXGD_CONTROL_H

#include "daemon.h"

/* Answers a request exactly once. fd: a descriptor that came with it, else -1. */
void control_handle(struct connection *c, const struct request *r, int fd);

#endif
