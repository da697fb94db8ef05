// SPDX-License-Identifier: MIT
/*
 * machine.c - reads the machine's configuration from /proc and /sys. May not: change anything.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "machine.h"
#include "undo.h"

/* A file's first line under a member's name, where it can be read. */
static void add_line(json_t *record, const char *member, const char *path)
{
	char line[1024];

	if (undo_read_line(path, line, sizeof(line)) > 0)
		json_object_set_new(record, member, json_string(line));
}

/* The value of the first line of /proc/cpuinfo that begins with one of these names. */
static void add_cpu(json_t *record)
{
	static const char *const names[] = { "model name", "Processor", "cpu model", "CPU part" };
	char line[8192];
	FILE *file = fopen("/proc/cpuinfo", "re");
	bool emulated = false, named = false;

	while (file && fgets(line, sizeof(line), file)) {
		char *value = strchr(line, ':');

		if (!value)
			continue;
		value[strcspn(value, "\n")] = 0;
		if (!strncmp(line, "flags", 5) && strstr(value, " hypervisor"))
			emulated = true;
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !named; i++)
			if (!strncmp(line, names[i], strlen(names[i]))) {
				value++;
				value += strspn(value, " ");
				json_object_set_new(record, "cpu", json_string(value));
				named = true;
			}
	}
	if (file)
		fclose(file);
	json_object_set_new(record, "virtual", json_boolean(emulated));
}

static const char *preemption(const char *version, char *text, size_t size)
{
	char line[256], *open;

	if (strstr(version, "PREEMPT_RT"))
		return "rt";
	/* "none voluntary (full)": the one in force; debugfs may not be mounted or readable */
	if (undo_read_line("/sys/kernel/debug/sched/preempt", line, sizeof(line)) > 0 &&
	    (open = strchr(line, '('))) {
		open[strcspn(open, ")")] = 0;
		snprintf(text, size, "%s", open + 1);
		return text;
	}
	return strstr(version, "PREEMPT_DYNAMIC") ? "dynamic"
	       : strstr(version, "PREEMPT")	  ? "full"
						  : "voluntary or none";
}

json_t *machine_record(void)
{
	json_t *record = json_object();
	struct utsname names;
	char text[64];

	if (!uname(&names)) {
		json_object_set_new(record, "node", json_string(names.nodename));
		json_object_set_new(record, "kernel", json_string(names.release));
		json_object_set_new(record, "version", json_string(names.version));
		json_object_set_new(record, "architecture", json_string(names.machine));
		json_object_set_new(record, "preemption",
				    json_string(preemption(names.version, text, sizeof(text))));
	}
	json_object_set_new(record, "cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
	add_cpu(record);
#ifdef _SC_LEVEL3_CACHE_SIZE
	json_object_set_new(record, "l3_bytes", json_integer(sysconf(_SC_LEVEL3_CACHE_SIZE)));
#endif
	json_object_set_new(
		record, "memory_bytes",
		json_integer((json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)));
	add_line(record, "command_line", "/proc/cmdline");
	add_line(record, "clocksource",
		 "/sys/devices/system/clocksource/clocksource0/current_clocksource");
	add_line(record, "governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
	add_line(record, "cpuidle", "/sys/devices/system/cpu/cpuidle/current_driver");
	add_line(record, "isolated", "/sys/devices/system/cpu/isolated");
	add_line(record, "nohz_full", "/sys/devices/system/cpu/nohz_full");
	add_line(record, "rt_runtime_us", "/proc/sys/kernel/sched_rt_runtime_us");
	add_line(record, "nvidia", "/proc/driver/nvidia/version");
	return record;
}

uint64_t machine_stolen_ns(void)
{
	char line[512];
	unsigned long long field[8];

	if (undo_read_line("/proc/stat", line, sizeof(line)) <= 0 ||
	    sscanf(line, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &field[0], &field[1],
		   &field[2], &field[3], &field[4], &field[5], &field[6], &field[7]) != 8)
		return 0;
	return field[7] * (1000000000ull / (unsigned long long)sysconf(_SC_CLK_TCK));
}
