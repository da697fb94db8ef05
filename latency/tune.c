// SPDX-License-Identifier: MIT
/*
 * tune.c - changes settings through undo.c, which puts them back. /dev/cpu_dma_latency is held by
 * an open file, so that the kernel itself puts it back.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../cli/message.h"
#include "tune.h"
#include "undo.h"

static int governor(const char *name, void (*said)(const char *format, ...))
{
	char known[512];
	glob_t found;

	if (undo_read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_available_governors",
			   known, sizeof(known)) > 0) {
		char padded[520], word[64];

		snprintf(padded, sizeof(padded), " %s ", known);
		snprintf(word, sizeof(word), " %.60s ", name);
		if (!strstr(padded, word)) {
			message_error("--governor: '%s' is not accepted; accepted: %s", name,
				      known);
			return -EINVAL;
		}
	}
	if (glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor", 0, NULL, &found)) {
		said("governor %s: this machine has no cpufreq; its host or firmware sets the "
		     "clock",
		     name);
		return 0;
	}
	for (size_t i = 0; i < found.gl_pathc; i++) {
		int ret = undo_write(found.gl_pathv[i], name);

		if (ret) {
			said("governor %s: %s: %s; root is needed", name, found.gl_pathv[i],
			     strerror(-ret));
			break;
		}
	}
	globfree(&found);
	return 0;
}

/* The interrupts whose line in /proc/interrupts holds the name, or whose number it is. */
static int interrupts(const struct settings_irq *irq, void (*said)(const char *format, ...))
{
	FILE *file = fopen("/proc/interrupts", "re");
	char *line = NULL, *end, path[64];
	size_t size = 0;
	int found = 0;

	while (file && getline(&line, &size, file) > 0) {
		long number = strtol(line, &end, 10);
		char *digits;
		int ret;

		if (end == line || *end != ':')
			continue;
		if (strtol(irq->name, &digits, 10) == number && !*digits)
			found++;
		else if (!*digits || !strstr(end, irq->name))
			continue;
		else
			found++;
		snprintf(path, sizeof(path), "/proc/irq/%ld/smp_affinity_list", number);
		ret = undo_write(path, irq->cpus);
		if (ret)
			said("interrupt %ld (%s) stays where it is: %s%s", number, irq->name,
			     strerror(-ret),
			     ret == -EACCES ? "; root is needed"
			     : ret == -EIO  ? "; the kernel keeps it on its CPU"
					    : "");
	}
	free(line);
	if (file)
		fclose(file);
	if (!found)
		message_error("--irq: no interrupt is called '%s'; see /proc/interrupts",
			      irq->name);
	return found ? 0 : -EINVAL;
}

int tune_machine(const struct settings *s, void (*said)(const char *format, ...))
{
	if (s->lock_memory && mlockall(MCL_CURRENT | MCL_FUTURE))
		said("memory is not locked: %s; CAP_IPC_LOCK or a larger 'ulimit -l' is needed",
		     strerror(errno));
	if (s->pm_qos_us >= 0) {
		int32_t us = (int32_t)s->pm_qos_us;
		int fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);

		if (fd < 0 || write(fd, &us, sizeof(us)) != sizeof(us))
			said("CPUs may go into deep idle states: /dev/cpu_dma_latency: %s%s",
			     strerror(errno), errno == EACCES ? "; root is needed" : "");
	}
	if (s->governor && governor(s->governor, said))
		return -EINVAL;
	for (int i = 0; i < s->irq_count; i++)
		if (interrupts(&s->irqs[i], said))
			return -EINVAL;
	return 0;
}
