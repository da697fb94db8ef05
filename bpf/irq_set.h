/* SPDX-License-Identifier: MIT */
/*
 * irq_set.h - gives a device's interrupts to a GPU of rtxg's, by a map of the device: see
 * irq_set.c.
 */
#ifndef RTXG_BPF_IRQ_SET_H
#define RTXG_BPF_IRQ_SET_H

#include <stdbool.h>
#include <stdint.h>

struct irq_set {
	const char *map; /* a file, or the name of one that was installed */
	const char *gpu; /* NULL: bind to none */
	/* what the driver's threads run at: enum rtxg_irq_mode, priority; mode 0: as they are */
	uint32_t mode, priority, flags;
	int32_t pid;
	uint64_t runtime_ns, period_ns; /* of the bandwidth server of threads without an owner */
};

/* "owner", "owner:N", "aware", "aware:N", "N" or "kept". False: none of these. */
bool irq_set_mode(const char *text, struct irq_set *set);
/* "RUNTIME/PERIOD", in microseconds. False: not that. */
bool irq_set_server(const char *text, struct irq_set *set);
/*
 * Does it, calls wait, prints what came of it, and gives all back. The exit status of rtxg-irq;
 * says on stderr what is wrong.
 */
int irq_set_run(const struct irq_set *set, bool json, double (*wait)(double seconds),
		double seconds);

#endif
