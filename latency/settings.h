/* SPDX-License-Identifier: MIT */
/*
 * settings.h - what a run is asked for: the command line of `rtxg latency`, with cyclictest's
 * letters.
 */
#ifndef RTXG_LATENCY_SETTINGS_H
#define RTXG_LATENCY_SETTINGS_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define SETTINGS_IRQS 8

/* An interrupt and the CPUs that it is to have during the run. */
struct settings_irq {
	char name[64]; /* number, or a part of what /proc/interrupts says of it */
	char cpus[128];
};

struct settings {
	long priority; /* 0: SCHED_OTHER */
	int policy;    /* SCHED_*; -1: from the priority */
	uint64_t interval_ns, distance_ns;
	long threads; /* 0: one for each CPU of cpus */
	bool bound;   /* -a: each thread has one CPU */
	cpu_set_t cpus;
	bool lock_memory;
	uint64_t duration_ns; /* 0: until a signal */
	uint64_t loops;	      /* 0: not limited */
	uint32_t bins;	      /* of the histograms, in us */
	bool show_histogram;  /* -h */
	uint64_t break_ns;    /* -b; 0: none */
	const char *json;     /* file, or - */
	bool quiet;
	long pm_qos_us;	      /* -1: power management is left alone */
	const char *governor; /* NULL: left alone */
	struct settings_irq irqs[SETTINGS_IRQS];
	int irq_count;
	bool user_only;	    /* no BPF */
	bool gpu;	    /* launches in place of wake-ups */
	const char *gpu_by; /* "cuda", "opencl"; NULL: the first that works */
	bool every_task;    /* other real-time tasks too */
	uint64_t report_ns; /* a line of JSON for each such time; 0: none */
};

/*
 * Reads the command line. Returns -1 to go on, or the exit status after saying why, or after
 * --help.
 */
int settings_read(struct settings *s, int argc, char **argv);

#endif
