/* SPDX-License-Identifier: MIT */
/* ready.h - the daemon stands ready for hand-overs that are foreseen (ahead_ns of a GPU). */
#ifndef RTXGD_READY_H
#define RTXGD_READY_H

#include <sys/epoll.h>

#include "daemon.h"

/* The engine is likely to be handed over before until. */
void ready_begin(uint32_t gpu, uint32_t engine, uint64_t until);

/*
 * While such a hand-over may come, and until `at` at most: looks at doorbells and at what devices
 * write, without sleeping. How many doorbells rang, as epoll_wait(); 0 also when none is awaited.
 */
int ready_wait(struct daemon *d, struct epoll_event *events, int most, uint64_t at);

#endif
