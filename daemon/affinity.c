// SPDX-License-Identifier: MIT
/*
 * affinity.c - to which CPUs an interrupt is sent, read and written as the kernel shows it, and
 * whose interrupt it is. May not: decide where one is sent.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "affinity.h"

/* Of a list of CPUs, as the kernel writes it and takes it: every other one, of four digits. */
#define LIST (RTXG_KEEPOFF_CPUS / 2 * 5 + 2)

/* --- sets of CPUs ----------------------------------------------------------------------------- */

static void add(struct rtxg_keepoff_cpus *cpus, uint32_t cpu)
{
	cpus->words[cpu / 64] |= 1ull << cpu % 64;
}

static bool has(const struct rtxg_keepoff_cpus *cpus, uint32_t cpu)
{
	return cpu < RTXG_KEEPOFF_CPUS && cpus->words[cpu / 64] >> cpu % 64 & 1;
}

/* A CPU's number and what follows it. */
static int cpu_number(const char **text, uint32_t *cpu)
{
	uint32_t n = 0;

	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	for (; isdigit((unsigned char)**text); (*text)++)
		if (n < RTXG_KEEPOFF_CPUS)
			n = n * 10 + (uint32_t)(**text - '0');
	*cpu = n;
	return n < RTXG_KEEPOFF_CPUS ? 0 : -ERANGE;
}

int affinity_parse(const char *list, struct rtxg_keepoff_cpus *cpus)
{
	uint32_t first, last;
	int error;

	*cpus = (struct rtxg_keepoff_cpus){ { 0 } };
	if (!*list)
		return 0;
	for (;; list++) {
		error = cpu_number(&list, &first);
		if (error)
			return error;
		last = first;
		if (*list == '-') {
			list++;
			error = cpu_number(&list, &last);
			if (error)
				return error;
		}
		if (last < first || (*list && *list != ','))
			return -EINVAL;
		for (uint32_t cpu = first; cpu <= last; cpu++)
			add(cpus, cpu);
		if (!*list)
			return 0;
	}
}

void affinity_list(const struct rtxg_keepoff_cpus *cpus, char *list, size_t size)
{
	size_t used = 0;

	*list = 0;
	for (uint32_t cpu = 0; cpu < RTXG_KEEPOFF_CPUS; cpu++) {
		uint32_t first = cpu;
		char range[32];
		int length;

		if (!has(cpus, cpu))
			continue;
		while (has(cpus, cpu + 1))
			cpu++;
		length = snprintf(range, sizeof(range), cpu > first ? "%s%u-%u" : "%s%u",
				  used ? "," : "", first, cpu);
		if (used + (size_t)length + sizeof("...") > size) {
			snprintf(list + used, size - used, "...");
			return;
		}
		memcpy(list + used, range, (size_t)length + 1);
		used += (size_t)length;
	}
}

void affinity_hex(const struct rtxg_keepoff_cpus *cpus, char hex[AFFINITY_HEX])
{
	for (uint32_t i = 0; i < RTXG_KEEPOFF_WORDS; i++)
		snprintf(hex + i * 16, 17, "%016llx", (unsigned long long)cpus->words[i]);
}

bool affinity_of_hex(const char *hex, struct rtxg_keepoff_cpus *cpus)
{
	if (strlen(hex) != AFFINITY_HEX - 1 || strspn(hex, "0123456789abcdef") != AFFINITY_HEX - 1)
		return false;
	for (uint32_t i = 0; i < RTXG_KEEPOFF_WORDS; i++) {
		char word[17] = "";

		memcpy(word, hex + i * 16, 16);
		cpus->words[i] = strtoull(word, NULL, 16);
	}
	return true;
}

/* --- the kernel's files ----------------------------------------------------------------------- */

/* Its first line, without the end. */
static int read_line(const char *path, char *line, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	*line = 0;
	if (fd < 0)
		return -errno;
	n = read(fd, line, size - 1);
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return (int)n;
	line[n] = 0;
	line[strcspn(line, "\n")] = 0;
	return 0;
}

int affinity_online(struct rtxg_keepoff_cpus *cpus)
{
	char line[LIST];
	int error = read_line("/sys/devices/system/cpu/online", line, sizeof(line));

	if (!error)
		error = affinity_parse(line, cpus);
	return !error && rtxg_keepoff_none(cpus) ? -EINVAL : error;
}

int affinity_name(uint32_t number, char name[AFFINITY_NAME])
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/kernel/irq/%u/actions", number);
	return read_line(path, name, AFFINITY_NAME);
}

bool affinity_shared(const char *a, const char *b)
{
	for (; *a; a += strspn(a, ",")) {
		size_t length = strcspn(a, ",");

		for (const char *at = b; *at; at += strspn(at, ",")) {
			size_t other = strcspn(at, ",");

			if (length == other && length && !memcmp(a, at, length))
				return true;
			at += other;
		}
		a += length;
	}
	return false;
}

bool affinity_of_device(uint32_t number, const char *address)
{
	char path[96], line[16];

	if (address[strspn(address, "0123456789abcdef:.")])
		return false;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.31s/msi_irqs/%u", address, number);
	if (!access(path, F_OK))
		return true;
	/* Its line, or where it has message interrupts the first of these. */
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.31s/irq", address);
	return !read_line(path, line, sizeof(line)) && *line && strcmp(line, "0") &&
	       strtoul(line, NULL, 10) == number;
}

static void affinity_path(uint32_t number, char path[64])
{
	snprintf(path, 64, "/proc/irq/%u/smp_affinity_list", number);
}

int affinity_get(uint32_t number, struct rtxg_keepoff_cpus *cpus)
{
	char path[64], line[LIST];
	int error;

	affinity_path(number, path);
	error = read_line(path, line, sizeof(line));
	return error ? error : affinity_parse(line, cpus);
}

int affinity_set(uint32_t number, const struct rtxg_keepoff_cpus *cpus)
{
	char path[64], list[LIST];
	int fd, error = 0;
	size_t length;
	ssize_t n;

	affinity_path(number, path);
	affinity_list(cpus, list, sizeof(list) - 1);
	length = strlen(list);
	list[length++] = '\n';
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = write(fd, list, length);
	if (n < 0)
		/*
		 * What may be opened and not be written: the kernel's EIO until 6.14, then EPERM.
		 */
		error = errno == EPERM ? -EIO : -errno;
	close(fd);
	return error;
}
