/* SPDX-License-Identifier: MIT */
/*
 * value.h - values as they are typed on the command line, and back. Each reader returns 0, or
 * -EINVAL after saying which option, what was read, what is accepted.
 */
#ifndef RTXG_CLI_VALUE_H
#define RTXG_CLI_VALUE_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

int value_share(const char *option, const char *text, uint32_t *ppm); /* 40, 40%, 37.5% */
/* 10ms, 1.5s; a unit is needed */
int value_duration(const char *option, const char *text, uint64_t *ns);
/* a bound on waiting, 100us to 10s; length of a turn, 1ms to 1s */
int value_latency(const char *option, const char *text, uint64_t *ns);
int value_quantum(const char *option, const char *text, uint64_t *ns);
int value_quota(const char *option, const char *text, uint32_t *ppm,
		uint64_t *period_ns); /* share or 4ms/10ms; or max */
int value_number(const char *option, const char *text, long min, long max, long *value);
/* 0-3,6 as taskset -c */
int value_cpus(const char *option, const char *text, cpu_set_t *cpus);
char *value_format_cpus(const cpu_set_t *cpus, char *buffer, size_t size);
/* 512M, 1.5G; of 1024 */
int value_bytes(const char *option, const char *text, uint64_t *bytes);
char *value_format_bytes(uint64_t bytes, char *buffer, size_t size); /* as 812M, 7.5G */
char *value_format_duration(uint64_t ns, char *buffer, size_t size);
char *value_format_share(double share, char *buffer, size_t size); /* 0..1 as "40.0%" */

#endif
