/* SPDX-License-Identifier: MIT */
/* control.h - what comes in is carried out: see control.c. */
#ifndef RTXGD_CONTROL_H
#define RTXGD_CONTROL_H

#include "daemon.h"

/* Answers one packet exactly once. fd: a descriptor that came with it, else -1. */
void control_packet(struct connection *c, const char *text, size_t size, int fd);

#endif
