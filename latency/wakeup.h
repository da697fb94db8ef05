/* SPDX-License-Identifier: MIT */
/*
 * wakeup.h - completes the events of a wake-up by what its own times tell.
 */
#ifndef RTXG_LATENCY_WAKEUP_H
#define RTXG_LATENCY_WAKEUP_H

#include "../bpf/latency.h"
#include "../bpf/event.h"

/*
 * The interrupt of the timer that woke the task, whose end no program saw. It is taken to have
 * lasted as long as the shortest wake-up takes from the timer's function to the switch, and to have
 * ended before anything else on the CPU began. Where it came upon user code of a lower priority it
 * is taken to have lasted until then: such code cannot turn preemption off. Two events are added;
 * returns how many there are. Does nothing where the events do not tell of the wake-up, or where it
 * is known that the interrupt ended.
 */
int wakeup_interrupt(struct event *events, int count, const struct latency_wake *wake,
		     unsigned long long least_ns);

/* A task that did not sleep: it ran when it was to wake, and nothing else was recorded. */
struct event wakeup_awake(const struct latency_wake *wake, unsigned long long expected_ns);

#endif
