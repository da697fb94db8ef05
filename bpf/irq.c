// SPDX-License-Identifier: MIT
/*
 * irq.c - rtxg-irq: shows what interrupts do, where no module may be loaded (irq.bpf.c).
 *
 * The program chooses interrupts by name or number, loads the BPF program, waits, and prints for
 * each interrupt: the rate, the time of the top half, the tasks that the top half woke and the time
 * until these tasks ran, the dma_fences that were signalled and the time until the tasks that slept
 * for a fence went on. With -m it prints the kernel module's counts, which are fewer. May not:
 * change anything, but for -M (irq_set.c).
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <getopt.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <linux/types.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rtxg/irq.h>

#include "../cli/text.h"
#include "irq.h"
#include "inversions_run.h"
#include "irq.skel.h"
#include "irq_set.h"
#include "rtxg_clock.h"

#define HANDLERS_MAX 16 /* of one shared interrupt, in the module */

/* An interrupt that came, from either source. */
struct row {
	unsigned int irq;
	struct irq_counts counts;
	/* the module's own words, summed over the handlers of a shared interrupt */
	struct rtxg_irq_stats module;
};

struct rows {
	struct row *row;
	size_t count;
};

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	stopped = 1;
}

static int usage(FILE *to)
{
	fprintf(to,
		"usage: rtxg-irq [-d SECONDS] [-J] [-m] [NAME|NUMBER]...\n"
		"       rtxg-irq -i [-p PID] [-d SECONDS] [-J] [NAME|NUMBER]...\n"
		"       rtxg-irq -M MAP [-g GPU] [-o MODE] [-p PID] [-b] [-t] [-s RUNTIME/PERIOD] "
		"[-d SECONDS] [-J]\n"
		"Shows interrupts: how many, how long the driver's top half took, which threads it "
		"woke\n"
		"and how long until they ran, which dma_fences were signalled because of it and "
		"how long\n"
		"until the threads that slept for them went on.\n"
		"NAME is a part of what /proc/interrupts shows (nvidia, nvme0q1); without any, all "
		"that a driver has asked for.\n"
		"  -d SECONDS  how long (default 5; 0 = until ^C)\n"
		"  -J          JSON, with histograms: slot n counts times of 2^n to 2^(n+1)-1 ns\n"
		"  -m          from the kernel module (/dev/rtxg) instead of BPF: counts less, but "
		"sees the handlers' threads\n"
		"  -i          priority inversions that they cause, for each owner: real-time "
		"tasks "
		"above the owner that\n"
		"              wait while their work runs, and their threads that wait while "
		"something below it runs\n"
		"  -M MAP      take the interrupts of the device of this map, a file or one that "
		"is "
		"installed (nvme, virtio-gpu),\n"
		"              for so long, through the module\n"
		"  -g GPU      they are completions of this GPU: the next task gets its permit "
		"from them\n"
		"  -o MODE     its driver's threads run at \"owner\" (the priority of the task "
		"that holds "
		"the engine; \"owner:N\":\n"
		"              N while there is none), at N (1 to 97), or as they are (\"kept\", "
		"the "
		"default)\n"
		"  -p PID      the owner is this thread, while no task holds the engine; with -i: "
		"in place of\n"
		"              the last thread that their work woke\n"
		"              MODE \"aware\": as owner, with -t, and a tasklet whose owner comes "
		"before the interrupted task runs at once\n"
		"  -b          they may run while their owner does\n"
		"  -t          tasklets of the interrupts run in a thread of the module, too\n"
		"  -s RUNTIME/PERIOD  without an owner, so many microseconds in each period, and "
		"then as ordinary threads\n"
		"Needs root (CAP_BPF and CAP_PERFMON; with -m CAP_SYS_RAWIO).\n");
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

/*
 * Calls fn for the interrupts that /proc/interrupts lists and the words choose; how many it took,
 * or a negative errno.
 */
static int choose(char **words, int count, int (*fn)(void *ctx, unsigned int irq), void *ctx)
{
	FILE *file = fopen("/proc/interrupts", "r");
	char *line = NULL;
	size_t room = 0;
	int chosen = 0;

	if (!file)
		return -errno;
	while (getline(&line, &room, file) > 0) {
		char *end;
		unsigned long number = strtoul(line, &end, 10);
		unsigned int key = (unsigned int)number;

		if (end == line || *end != ':')
			/*
			 * the head, or an interrupt of the architecture: no driver has a handler
			 * there
			 */
			continue;
		line[strcspn(line, "\n")] = 0;
		if (wanted(end, key, words, count) && !fn(ctx, key))
			chosen++;
	}
	free(line);
	fclose(file);
	return chosen;
}

static int choose_for_bpf(void *map, unsigned int irq)
{
	static const struct irq_counts empty;

	return bpf_map_update_elem(*(int *)map, &irq, &empty, BPF_ANY);
}

static struct row *add_row(struct rows *rows, unsigned int irq)
{
	struct row *more = reallocarray(rows->row, rows->count + 1, sizeof(*more));

	if (!more)
		return NULL;
	rows->row = more;
	more += rows->count++;
	memset(more, 0, sizeof(*more));
	more->irq = irq;
	return more;
}

static void read_bpf(int map, struct rows *rows)
{
	unsigned int key, next, *at = NULL;
	struct irq_counts counts;

	while (!bpf_map_get_next_key(map, at, &next)) {
		struct row *row;

		key = next;
		at = &key;
		if (bpf_map_lookup_elem(map, &key, &counts) || !counts.entries)
			continue;
		row = add_row(rows, key);
		if (!row)
			return;
		counts.name[sizeof(counts.name) - 1] = 0;
		row->counts = counts;
		text_clean(row->counts.name);
	}
}

/* The module's attachments, one for each handler of a chosen interrupt. */
struct attached {
	int fd;
	int err; /* of the first interrupt that was refused */
	struct rtxg_irq_attach *list;
	size_t count;
};

static int choose_for_module(void *ctx, unsigned int irq)
{
	struct attached *a = ctx;
	int ret = -ENOENT;

	for (unsigned int index = 0; index < HANDLERS_MAX; index++) {
		struct rtxg_irq_attach attach = { .size = sizeof(attach),
						  .irq = irq,
						  .index = index };
		struct rtxg_irq_attach *more;

		if (ioctl(a->fd, RTXG_IOC_IRQ_ATTACH, &attach)) {
			/* Beyond its last handler, or a kind that cannot be taken. */
			if (!index && !a->err)
				a->err = -errno;
			break;
		}
		more = reallocarray(a->list, a->count + 1, sizeof(*more));
		if (!more)
			break;
		a->list = more;
		a->list[a->count++] = attach;
		ret = 0;
	}
	return ret;
}

static void read_module(const struct attached *a, struct rows *rows)
{
	for (size_t i = 0; i < a->count; i++) {
		struct rtxg_irq_stats stats = { .size = sizeof(stats), .id = a->list[i].id };
		struct row *row = rows->count && rows->row[rows->count - 1].irq == a->list[i].irq
					  ? &rows->row[rows->count - 1]
					  : NULL;

		if (ioctl(a->fd, RTXG_IOC_IRQ_STATS, &stats) || !stats.entries)
			continue;
		if (!row) {
			row = add_row(rows, a->list[i].irq);
			if (!row)
				return;
			snprintf(row->counts.name, sizeof(row->counts.name), "%s", a->list[i].name);
			text_clean(row->counts.name);
		}
		row->counts.entries += stats.entries;
		row->counts.handled += stats.handled;
		row->counts.handler_ns += stats.handler_ns;
		if (stats.exits && (!row->counts.handler_min_ns ||
				    stats.handler_min_ns < row->counts.handler_min_ns))
			row->counts.handler_min_ns = stats.handler_min_ns;
		if (stats.handler_max_ns > row->counts.handler_max_ns)
			row->counts.handler_max_ns = stats.handler_max_ns;
		row->module.thread_entries += stats.thread_entries;
		row->module.thread_ns += stats.thread_ns;
		if (stats.thread_max_ns > row->module.thread_max_ns)
			row->module.thread_max_ns = stats.thread_max_ns;
	}
}

static double mean(unsigned long long sum, unsigned long long count)
{
	return count ? (double)sum / (double)count : 0;
}

/* A name that text_clean() has seen. */
static void print_name(const char *name)
{
	putchar('"');
	for (; *name; name++) {
		if (*name == '"' || *name == '\\')
			putchar('\\');
		putchar(*name);
	}
	putchar('"');
}

/* Members of JSON: a number, or null where the source does not count it. */
static void print_number(const char *name, bool known, unsigned long long number)
{
	if (known)
		printf(",\"%s\":%llu", name, number);
	else
		printf(",\"%s\":null", name);
}

static void print_times(const char *name, bool known, const struct irq_times *times)
{
	char member[48];

	snprintf(member, sizeof(member), "ran_%s", name);
	print_number(member, known, times->count);
	snprintf(member, sizeof(member), "ran_%s_ns", name);
	print_number(member, known, times->sum_ns);
	snprintf(member, sizeof(member), "ran_%s_min_ns", name);
	print_number(member, known && times->count, times->min_ns);
	snprintf(member, sizeof(member), "ran_%s_max_ns", name);
	print_number(member, known, times->max_ns);
}

static void print_slots(const char *name, bool known, const unsigned int *slots)
{
	printf(",\"%s\":%s", name, known ? "[" : "null");
	for (int i = 0; known && i < IRQ_SLOTS; i++)
		printf("%s%u", i ? "," : "", slots[i]);
	printf("%s", known ? "]" : "");
}

/* The same members from either source. */
static void print_json(const struct row *row, bool module)
{
	const struct irq_counts *c = &row->counts;

	printf("{\"irq\":%u,\"name\":", row->irq);
	print_name(c->name);
	print_number("entries", true, c->entries);
	print_number("handled", true, c->handled);
	print_number("handler_ns", true, c->handler_ns);
	print_number("handler_min_ns", c->handler_min_ns, c->handler_min_ns);
	print_number("handler_max_ns", true, c->handler_max_ns);
	print_number("thread_entries", module, row->module.thread_entries);
	print_number("thread_ns", module, row->module.thread_ns);
	print_number("thread_max_ns", module, row->module.thread_max_ns);
	print_number("woken", !module, c->woken);
	print_number("ran", !module, c->ran);
	print_number("latency_ns", !module, c->latency_ns);
	print_number("latency_max_ns", !module, c->latency_max_ns);
	print_times("programs", !module, &c->reached[IRQ_PROGRAMS]);
	print_times("threads", !module, &c->reached[IRQ_THREADS]);
	print_times("workers", !module, &c->reached[IRQ_WORKERS]);
	print_number("softirqs", !module, c->softirqs);
	print_number("fences", !module, c->fences);
	print_number("fence_emits", !module, c->fence_emits);
	print_number("fence_busy_ns", !module, c->fence_busy_ns);
	print_number("fence_waits", !module, c->fence_waits);
	print_number("fence_wait_ns", !module, c->fence_wait_ns);
	print_number("fence_wait_max_ns", !module, c->fence_wait_max_ns);
	print_slots("handler_slots", !module, c->handler_slots);
	print_slots("latency_slots", !module, c->latency_slots);
	print_slots("fence_slots", !module, c->fence_slots);
	printf("}");
}

static void show(const struct rows *rows, const struct irq_fences *all, double seconds, bool json,
		 bool module)
{
	if (json)
		printf("{\"seconds\":%.3f,\"source\":\"%s\",\"interrupts\":[", seconds,
		       module ? "module" : "bpf");
	else if (module)
		printf("%5s %-20s %10s %10s %10s %10s %10s\n", "IRQ", "NAME", "PER-SECOND",
		       "TOP-us", "TOP-MAX", "THREAD-us", "THREAD-MAX");
	else
		printf("%5s %-20s %10s %10s %10s %9s %10s %10s %9s %8s %8s %10s %10s\n", "IRQ",
		       "NAME", "PER-SECOND", "TOP-us", "TOP-MAX", "WOKEN", "RUN-us", "RUN-MAX",
		       "SOFTIRQS", "FENCES", "WAITS", "WAIT-us", "WAIT-MAX");
	for (size_t i = 0; i < rows->count; i++) {
		const struct row *row = &rows->row[i];
		const struct irq_counts *c = &row->counts;

		if (json) {
			printf("%s", i ? "," : "");
			print_json(row, module);
			continue;
		}
		printf("%5u %-20.20s %10.1f %10.2f %10.2f", row->irq, c->name,
		       (double)c->entries / seconds, mean(c->handler_ns, c->entries) / 1e3,
		       (double)c->handler_max_ns / 1e3);
		if (module)
			printf(" %10.2f %10.2f\n",
			       mean(row->module.thread_ns, row->module.thread_entries) / 1e3,
			       (double)row->module.thread_max_ns / 1e3);
		else
			printf(" %9llu %10.2f %10.2f %9llu %8llu %8llu %10.2f %10.2f\n", c->woken,
			       mean(c->latency_ns, c->ran) / 1e3, (double)c->latency_max_ns / 1e3,
			       c->softirqs, c->fences, c->fence_waits,
			       mean(c->fence_wait_ns, c->fence_waits) / 1e3,
			       (double)c->fence_wait_max_ns / 1e3);
	}
	if (!json)
		return;
	printf("],\"fences\":");
	if (all)
		printf("{\"emitted\":%llu,\"signalled\":%llu,\"attributed\":%llu,\"waits\":%llu}}"
		       "\n",
		       all->emitted, all->signalled, all->attributed, all->waits);
	else
		printf("null}\n");
}

static double now_s(void)
{
	return (double)rtxg_now_ns() / 1e9;
}

static double look(double seconds)
{
	double start = now_s();

	while (!stopped && (seconds == 0 || now_s() - start < seconds)) {
		double left = seconds == 0 ? 1 : seconds - (now_s() - start);
		struct timespec t = { (time_t)left, (long)((left - (double)(time_t)left) * 1e9) };

		if (left > 0)
			nanosleep(&t, NULL);
	}
	return now_s() - start;
}

/* Why nothing was chosen; 0 if something was. */
static int nothing_chosen(int chosen, int refused)
{
	if (chosen > 0)
		return 0;
	if (chosen < 0)
		fprintf(stderr, "rtxg-irq: /proc/interrupts cannot be read: %s\n",
			strerror(-chosen));
	else if (refused)
		fprintf(stderr,
			"rtxg-irq: the module takes none of these interrupts: %s; it needs "
			"CAP_SYS_RAWIO, and a handler of a driver\n",
			strerror(-refused));
	else
		fprintf(stderr,
			"rtxg-irq: no interrupt has that name or number; see /proc/interrupts\n");
	return 1;
}

static int from_module(double seconds, bool json, char **words, int count)
{
	struct attached a = { .fd = open("/dev/rtxg", O_RDWR | O_CLOEXEC) };
	struct rows rows = { 0 };
	int chosen, err = errno;

	if (a.fd < 0) {
		fprintf(stderr,
			"rtxg-irq: /dev/rtxg cannot be opened: %s; load rtxg.ko, or leave out -m\n",
			strerror(err));
		return err == EACCES || err == EPERM ? 77 : 1;
	}
	chosen = choose(words, count, choose_for_module, &a);
	if (nothing_chosen(chosen, a.err)) {
		close(a.fd);
		return a.err == -EPERM ? 77 : 1;
	}
	seconds = look(seconds);
	read_module(&a, &rows);
	close(a.fd); /* every handler is put back */
	show(&rows, NULL, seconds, json, true);
	free(rows.row);
	free(a.list);
	return 0;
}

/*
 * Tracepoints of fences are part of the kernel's dma-buf: a kernel without it has none, and the
 * rest is shown all the same.
 */
static int attach(struct irq *program, bool *fences)
{
	struct bpf_program *p;
	int ret;

	*fences = true;
	bpf_object__for_each_program(p, program->obj)
	{
		struct bpf_link *link;

		if (strncmp(bpf_program__name(p), "fence_", 6))
			continue;
		bpf_program__set_autoattach(p, false);
		if (!*fences)
			continue;
		link = bpf_program__attach(p); /* ends with this process */
		ret = (int)libbpf_get_error(link);
		if (ret == -ENOENT)
			*fences = false;
		else if (ret)
			return ret;
	}
	/* the end of a handler before its begin, so that each begin that is counted has an end */
	bpf_program__set_autoattach(program->progs.leave, false);
	program->links.leave = bpf_program__attach(program->progs.leave);
	ret = (int)libbpf_get_error(program->links.leave);
	if (ret) {
		program->links.leave = NULL;
		return ret;
	}
	return irq__attach(program);
}

/*
 * Programs that are detached may still run on other CPUs, and what they count would be read in
 * part. The kernel waits here until each CPU has left them. It refuses where CPUs run without a
 * tick.
 */
static void wait_for_programs(void)
{
	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
}

static int from_bpf(double seconds, bool json, char **words, int count)
{
	struct irq_fences all = { 0 }, *each;
	int ret, map, cpus = libbpf_num_possible_cpus();
	struct rows rows = { 0 };
	struct irq *program;
	unsigned int zero = 0;
	bool fences;

	libbpf_set_print(NULL);
	program = irq__open_and_load();
	if (!program) {
		ret = errno;
		fprintf(stderr,
			"rtxg-irq: the BPF program cannot be loaded: %s; it needs root, a kernel "
			"with BTF, and no lockdown\n",
			strerror(ret));
		return ret == EPERM || ret == EACCES ? 77 : 1;
	}
	map = bpf_map__fd(program->maps.chosen);
	if (nothing_chosen(choose(words, count, choose_for_bpf, &map), 0)) {
		irq__destroy(program);
		return 1;
	}
	ret = attach(program, &fences);
	if (ret) {
		fprintf(stderr, "rtxg-irq: the tracepoints cannot be attached to: %s\n",
			strerror(-ret));
		irq__destroy(program);
		return 1;
	}
	seconds = look(seconds);
	irq__detach(program);
	wait_for_programs();
	each = cpus > 0 ? calloc((size_t)cpus, sizeof(*each)) : NULL;
	if (each && !bpf_map_lookup_elem(bpf_map__fd(program->maps.all_fences), &zero, each))
		for (int i = 0; i < cpus; i++) {
			all.emitted += each[i].emitted;
			all.signalled += each[i].signalled;
			all.attributed += each[i].attributed;
			all.waits += each[i].waits;
		}
	read_bpf(map, &rows);
	show(&rows, fences && each ? &all : NULL, seconds, json, false);
	free(each);
	free(rows.row);
	irq__destroy(program);
	return 0;
}

/* The interrupts that the command line names. */
static char **named;
static int named_count;

static int choose_named(int (*fn)(void *ctx, unsigned int irq), void *ctx)
{
	return choose(named, named_count, fn, ctx);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = stop };
	struct irq_set set = { .mode = RTXG_IRQ_KEPT };
	bool json = false, module = false, inversions = false;
	double seconds = 5;
	int option;
	char *end;

	while ((option = getopt(argc, argv, "d:JimM:g:o:p:bts:h")) != -1) {
		switch (option) {
		case 'd':
			seconds = strtod(optarg, &end);
			if (end == optarg || *end || !(seconds >= 0) || seconds > 1e6) {
				fprintf(stderr,
					"rtxg-irq: -d \"%s\": seconds from 0 to 1000000 are "
					"accepted\n",
					optarg);
				return 2;
			}
			break;
		case 'J':
			json = true;
			break;
		case 'm':
			module = true;
			break;
		case 'i':
			inversions = true;
			break;
		case 'M':
			set.map = optarg;
			break;
		case 'g':
			set.gpu = optarg;
			break;
		case 'o':
			if (irq_set_mode(optarg, &set))
				break;
			fprintf(stderr,
				"rtxg-irq: -o \"%s\": kept, owner, owner:N, aware, aware:N and N "
				"are "
				"accepted, N "
				"from 1 "
				"to %u\n",
				optarg, RTXG_IRQ_PRIORITY_MAX);
			return 2;
		case 'p':
			set.pid = (int32_t)strtol(optarg, &end, 10);
			if (end != optarg && !*end && set.pid > 0)
				break;
			fprintf(stderr, "rtxg-irq: -p \"%s\": the number of a thread is accepted\n",
				optarg);
			return 2;
		case 'b':
			set.flags |= RTXG_IRQ_BESIDE;
			break;
		case 't':
			set.flags |= RTXG_IRQ_TASKLETS;
			break;
		case 's':
			if (irq_set_server(optarg, &set))
				break;
			fprintf(stderr,
				"rtxg-irq: -s \"%s\": RUNTIME/PERIOD in microseconds is accepted, "
				"the runtime from 1 to the period, the period from 100 to "
				"3600000000\n",
				optarg);
			return 2;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	named = argv + optind;
	named_count = argc - optind;
	if (inversions && (module || set.map || set.gpu || set.mode || set.flags)) {
		fprintf(stderr, "rtxg-irq: of the options only -d, -J and -p go with -i\n");
		return 2;
	}
	if (inversions)
		return inversions_run(&(struct inversions){ .owner = set.pid,
							    .json = json,
							    .seconds = seconds,
							    .choose = choose_named,
							    .wait = look });
	if (!set.map && (set.gpu || set.mode || set.pid || set.flags || set.runtime_ns)) {
		fprintf(stderr, "rtxg-irq: -g, -o, -p, -b, -t and -s go with -M\n");
		return 2;
	}
	if ((set.pid || set.flags & RTXG_IRQ_BESIDE || set.runtime_ns) &&
	    set.mode < RTXG_IRQ_OWNER) {
		fprintf(stderr, "rtxg-irq: -p, -b and -s go with -o owner or aware\n");
		return 2;
	}
	if (set.flags & RTXG_IRQ_TASKLETS && set.mode == RTXG_IRQ_KEPT) {
		fprintf(stderr, "rtxg-irq: -t goes with a priority: -o owner, aware or N\n");
		return 2;
	}
	if (set.map && (module || optind < argc)) {
		fprintf(stderr,
			"rtxg-irq: a map names the interrupts: no -m and no name with -M\n");
		return 2;
	}
	if (set.map)
		return irq_set_run(&set, json, look, seconds);
	return module ? from_module(seconds, json, named, named_count)
		      : from_bpf(seconds, json, named, named_count);
}
