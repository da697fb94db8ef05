/* SPDX-License-Identifier: MIT */
/*
 * order.h - puts decoded events of a CPU in the order in which they happened.
 */
#ifndef RTXG_LATENCY_ORDER_H
#define RTXG_LATENCY_ORDER_H

#include "../bpf/event.h"

/*
 * By time. Events of the same time stay as they were recorded, but for an interrupt's begin: that
 * is known at its end, and comes before what happened in the interrupt. Nearly sorted events, as a
 * recorder has them, take time in proportion to their number.
 */
void order_events(struct event *events, int count);

#endif
