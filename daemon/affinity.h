/* SPDX-License-Identifier: MIT */
/* affinity.h - to which CPUs an interrupt is sent: see affinity.c. */
#ifndef RTXGD_AFFINITY_H
#define RTXGD_AFFINITY_H

#include <stdbool.h>
#include <stdint.h>

#include "rtxg_cpu_keepoff.h"

/* Of all names of the handlers of an interrupt, with commas between them. */
#define AFFINITY_NAME 128u
/* Hexadecimal digits of a set of CPUs, and the end of the text. */
#define AFFINITY_HEX (RTXG_KEEPOFF_CPUS / 4 + 1)

/* "0-3,8". 0; -EINVAL: not in that form; -ERANGE: a CPU has a number beyond the last one. */
int affinity_parse(const char *list, struct rtxg_keepoff_cpus *cpus);
/* As above, cut off with "..." where the room ends. */
void affinity_list(const struct rtxg_keepoff_cpus *cpus, char *list, size_t size);
/* Without a list's commas, so that its length has a bound. */
void affinity_hex(const struct rtxg_keepoff_cpus *cpus, char hex[AFFINITY_HEX]);
bool affinity_of_hex(const char *hex, struct rtxg_keepoff_cpus *cpus);

/* The machine's CPUs that run. 0 or a negative errno. */
int affinity_online(struct rtxg_keepoff_cpus *cpus);
/* The names of who handles it, "" if none does. -ENOENT: there is no such interrupt. */
int affinity_name(uint32_t number, char name[AFFINITY_NAME]);
/* Whether some handler is in both lists of names. */
bool affinity_shared(const char *a, const char *b);
/* Whether it is one of the PCI device's, whose address is as 0000:41:00.0. */
bool affinity_of_device(uint32_t number, const char *address);
int affinity_get(uint32_t number, struct rtxg_keepoff_cpus *cpus);
/* -EIO: the kernel refuses to send it elsewhere. */
int affinity_set(uint32_t number, const struct rtxg_keepoff_cpus *cpus);

#endif
