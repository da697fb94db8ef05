/* SPDX-License-Identifier: MIT */
/*
 * fake_cupti.h - a test's side of fake_cupti.c.
 */
#ifndef RTXG_FAKE_CUPTI_H
#define RTXG_FAKE_CUPTI_H

#include <stdbool.h>

#include "cupti.h"

struct fake_cupti {
	int refuses; /* a profiler has subscribed */
};

extern struct fake_cupti fake_cupti;

int cuptiSubscribe(void **subscriber, cupti_callback function, void *user);
int cuptiEnableCallback(uint32_t enable, void *subscriber, uint32_t domain, uint32_t number);

/* The thread calls that function of CUDA's. False: nothing is told of it. */
bool fake_cupti_tell(uint32_t number, const void *parameters, void *context);

#endif
