// SPDX-License-Identifier: MIT
/*
 * irq.c - rtxg-irq: shows what interrupts do, where no module may be loaded (irq.bpf.c). It chooses interrupts by name or number, loads
 * the program, waits, and prints: rate, time of the top half, tasks woken by it and how long until they ran. May not change anything.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "irq.h"
#include "irq.skel.h"

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	stopped = 1;
}

static int usage(FILE *to)
{
	fprintf(to, "usage: rtxg-irq [-d SECONDS] [-J] [NAME|NUMBER]...\n"
		    "Shows interrupts: how many, how long the driver's top half took, whom it woke and how long until they ran.\n"
		    "NAME is a part of what /proc/interrupts shows (nvidia, nvme0q1); without any, all that a driver has asked for.\n"
		    "  -d SECONDS  how long (default 5; 0 = until ^C)\n"
		    "  -J          JSON, with histograms: slot n counts times of 2^n to 2^(n+1)-1 ns\n"
		    "Needs root (CAP_BPF and CAP_PERFMON).\n");
	return to == stderr ? 2 : 0;
}

static bool wanted(const char *name, unsigned int number, char **words, int count)
{
	if (!count)
		return true;
	for (int i = 0; i < count; i++) {
		char *end;
		unsigned long n = strtoul(words[i], &end, 10);

		if (*words[i] && !*end ? n == number : strstr(name, words[i]) != NULL)
			return true;
	}
	return false;
}

/* Puts the interrupts that /proc/interrupts lists and the words choose into the map; how many, or a negative errno. */
static int choose(int map, char **words, int count)
{
	FILE *file = fopen("/proc/interrupts", "r");
	char *line = NULL;
	size_t room = 0;
	int chosen = 0;

	if (!file)
		return -errno;
	while (getline(&line, &room, file) > 0) {
		static const struct irq_counts empty;
		char *end;
		unsigned long number = strtoul(line, &end, 10);
		unsigned int key = (unsigned int)number;

		if (end == line || *end != ':')
			continue; /* the head, or an interrupt of the architecture: no driver has a handler there */
		line[strcspn(line, "\n")] = 0;
		if (!wanted(end, key, words, count))
			continue;
		if (!bpf_map_update_elem(map, &key, &empty, BPF_ANY))
			chosen++;
	}
	free(line);
	fclose(file);
	return chosen;
}

static double mean(unsigned long long sum, unsigned long long count)
{
	return count ? (double)sum / (double)count : 0;
}

static void print_slots(const char *name, const unsigned int *slots)
{
	printf(",\"%s\":[", name);
	for (int i = 0; i < IRQ_SLOTS; i++)
		printf("%s%u", i ? "," : "", slots[i]);
	printf("]");
}

/* A driver's name is text from the kernel, but may hold anything. */
static void print_name(const char *name)
{
	putchar('"');
	for (int i = 0; i < IRQ_NAME && name[i]; i++) {
		if (name[i] == '"' || name[i] == '\\')
			putchar('\\');
		if ((unsigned char)name[i] >= 0x20)
			putchar(name[i]);
	}
	putchar('"');
}

static void show(int map, double seconds, bool json)
{
	unsigned int key, next, *at = NULL;
	struct irq_counts c;
	bool first = true;

	if (json)
		printf("{\"seconds\":%.3f,\"interrupts\":[", seconds);
	else
		printf("%5s %-20s %10s %10s %10s %9s %10s %10s %9s\n", "IRQ", "NAME", "PER-SECOND", "TOP-us", "TOP-MAX", "WOKEN", "RUN-us",
		       "RUN-MAX", "SOFTIRQS");
	while (!bpf_map_get_next_key(map, at, &next)) {
		key = next;
		at = &key;
		if (bpf_map_lookup_elem(map, &key, &c) || !c.entries)
			continue;
		if (!json) {
			printf("%5u %-20.20s %10.1f %10.2f %10.2f %9llu %10.2f %10.2f %9llu\n", key, c.name, (double)c.entries / seconds,
			       mean(c.handler_ns, c.entries) / 1e3, (double)c.handler_max_ns / 1e3, c.woken,
			       mean(c.latency_ns, c.ran) / 1e3, (double)c.latency_max_ns / 1e3, c.softirqs);
			continue;
		}
		printf("%s{\"irq\":%u,\"name\":", first ? "" : ",", key);
		print_name(c.name);
		printf(",\"entries\":%llu,\"handled\":%llu,\"handler_ns\":%llu,\"handler_max_ns\":%llu,\"woken\":%llu,\"ran\":%llu,"
		       "\"latency_ns\":%llu,\"latency_max_ns\":%llu,\"softirqs\":%llu", c.entries, c.handled, c.handler_ns, c.handler_max_ns,
		       c.woken, c.ran, c.latency_ns, c.latency_max_ns, c.softirqs);
		print_slots("handler_slots", c.handler_slots);
		print_slots("latency_slots", c.latency_slots);
		printf("}");
		first = false;
	}
	if (json)
		printf("]}\n");
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = stop };
	double seconds = 5, start;
	struct irq *program;
	bool json = false;
	int option, ret;
	char *end;

	while ((option = getopt(argc, argv, "d:Jh")) != -1) {
		switch (option) {
		case 'd':
			seconds = strtod(optarg, &end);
			if (end == optarg || *end || !(seconds >= 0) || seconds > 1e6) {
				fprintf(stderr, "rtxg-irq: -d \"%s\": seconds from 0 to 1000000 are accepted\n", optarg);
				return 2;
			}
			break;
		case 'J':
			json = true;
			break;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	}
	libbpf_set_print(NULL);
	program = irq__open_and_load();
	if (!program) {
		ret = errno;
		fprintf(stderr, "rtxg-irq: the BPF program cannot be loaded: %s; it needs root, a kernel with BTF, and no lockdown\n", strerror(ret));
		return ret == EPERM || ret == EACCES ? 77 : 1;
	}
	ret = choose(bpf_map__fd(program->maps.chosen), argv + optind, argc - optind);
	if (ret <= 0) {
		fprintf(stderr, ret ? "rtxg-irq: /proc/interrupts cannot be read: %s\n" : "rtxg-irq: no interrupt has that name or number; "
			"see /proc/interrupts\n", strerror(-ret));
		irq__destroy(program);
		return 1;
	}
	ret = irq__attach(program);
	if (ret) {
		fprintf(stderr, "rtxg-irq: the tracepoints cannot be attached to: %s\n", strerror(-ret));
		irq__destroy(program);
		return 1;
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	start = now_s();
	while (!stopped && (seconds == 0 || now_s() - start < seconds)) {
		double left = seconds == 0 ? 1 : seconds - (now_s() - start);
		struct timespec t = { (time_t)left, (long)((left - (double)(time_t)left) * 1e9) };

		if (left > 0)
			nanosleep(&t, NULL);
	}
	seconds = now_s() - start;
	irq__detach(program);
	show(bpf_map__fd(program->maps.chosen), seconds, json);
	irq__destroy(program);
	return 0;
}
