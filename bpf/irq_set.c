// SPDX-License-Identifier: MIT
/*
 * irq_set.c - gives a device's interrupts to a GPU of rtxg's (rtxg-irq -M).
 *
 * A map is a JSON file for a kind of device: which PCI devices it is, which of their interrupts,
 * and by which bits of which register each source is known. With it the module is told which
 * interrupts are completions on which engine, and at which priority the driver's threads run. It
 * holds while this program runs. May not: know a device by itself.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rtxg/irq.h>

#include "irq_set.h"
#include "rtxg_clock.h"

#ifndef RTXG_IRQ_MAPS
#define RTXG_IRQ_MAPS "/usr/share/rtxg/irq"
#endif
#define PCI "/sys/bus/pci/devices"

static const char *const engines[] = { "compute", "copy_in", "copy_out" };

/* One source of one interrupt that was taken. */
struct taken {
	struct rtxg_irq_attach attach;
	const char *source; /* the map's */
	const char *engine; /* NULL: it is not bound */
	bool owned;
};

struct run {
	const struct irq_set *set;
	json_t *map;
	const char *path;
	int fd;
	struct taken *list;
	size_t count;
};

static int wrong(const char *path, const char *what)
{
	fprintf(stderr, "rtxg-irq: map %s: %s\n", path, what);
	return -EINVAL;
}

bool irq_set_mode(const char *text, struct irq_set *set)
{
	const char *number = text;
	unsigned long priority;
	char *end;

	set->mode = RTXG_IRQ_FIXED;
	set->priority = 1;
	if (!strcmp(text, "kept")) {
		set->mode = RTXG_IRQ_KEPT;
		set->priority = 0;
		return true;
	}
	if (!strncmp(text, "owner", 5) || !strncmp(text, "aware", 5)) {
		set->mode = *text == 'o' ? RTXG_IRQ_OWNER : RTXG_IRQ_PAI;
		if (set->mode == RTXG_IRQ_PAI)
			set->flags |= RTXG_IRQ_TASKLETS;
		if (!text[5])
			return true;
		if (text[5] != ':')
			return false;
		number = text + 6;
	}
	priority = strtoul(number, &end, 10);
	set->priority = (uint32_t)priority;
	return *number >= '0' && *number <= '9' && !*end && priority >= 1 &&
	       priority <= RTXG_IRQ_PRIORITY_MAX;
}

bool irq_set_server(const char *text, struct irq_set *set)
{
	unsigned long long runtime, period;
	char more;

	if (*text < '0' || *text > '9' ||
	    sscanf(text, "%llu/%llu%c", &runtime, &period, &more) != 2 || !runtime ||
	    runtime > period || period < 100 || period > 3600000000ull)
		return false;
	set->runtime_ns = runtime * 1000;
	set->period_ns = period * 1000;
	return true;
}

/* "0x24" or 36; JSON has no hexadecimal numbers. */
static bool read_number(const json_t *value, uint64_t most, uint64_t *number)
{
	const char *text = json_string_value(value);
	char *end;

	if (json_is_integer(value) && json_integer_value(value) >= 0) {
		*number = (uint64_t)json_integer_value(value);
		return *number <= most;
	}
	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*number = strtoull(text, &end, 0);
	return !*end && !errno && *number <= most;
}

static const char *engine_of(const json_t *source)
{
	const char *name = json_string_value(json_object_get(source, "engine"));

	for (size_t i = 0; name && i < sizeof(engines) / sizeof(engines[0]); i++)
		if (!strcmp(name, engines[i]))
			return engines[i];
	return NULL;
}

/* The register of a source; one without a register means each interrupt. */
static bool read_source(const json_t *source, struct rtxg_irq_attach *attach)
{
	const json_t *reg = json_object_get(source, "register");
	uint64_t bar, offset, width, mask, value = 0;

	if (json_is_true(json_object_get(source, "after")))
		attach->flags |= RTXG_IRQ_F_AFTER;
	if (!reg)
		return true;
	if (!read_number(json_object_get(reg, "bar"), 5, &bar) ||
	    !read_number(json_object_get(reg, "offset"), UINT64_MAX, &offset) ||
	    !read_number(json_object_get(reg, "width"), 8, &width) ||
	    !read_number(json_object_get(reg, "mask"), UINT64_MAX, &mask))
		return false;
	if (json_object_get(reg, "value")) {
		if (!read_number(json_object_get(reg, "value"), UINT64_MAX, &value))
			return false;
		attach->flags |= RTXG_IRQ_F_EQUAL;
	}
	attach->flags |= RTXG_IRQ_F_SOURCE;
	attach->bar = (uint32_t)bar;
	attach->offset = offset;
	attach->width = (uint32_t)width;
	attach->mask = mask;
	attach->value = value;
	return true;
}

static json_t *read_map(const char *name, char *path, size_t size)
{
	const char *folder = getenv("RTXG_IRQ_MAPS");
	struct rtxg_irq_attach nothing = { 0 };
	json_t *map, *source;
	json_error_t error;
	const char *key;

	if (strchr(name, '/'))
		snprintf(path, size, "%s", name);
	else
		snprintf(path, size, "%s/%s.json", folder ? folder : RTXG_IRQ_MAPS, name);
	map = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	if (!map) {
		fprintf(stderr, "rtxg-irq: map %s: %s (line %d)\n", path, error.text, error.line);
		return NULL;
	}
	if (!json_is_array(json_object_get(map, "pci")) ||
	    !json_is_string(json_object_get(map, "interrupt")) ||
	    !json_object_size(json_object_get(map, "sources"))) {
		wrong(path, "\"pci\" (a list of \"vendor:device\"), \"interrupt\" (a part of its "
			    "name) and "
			    "\"sources\" are needed");
		json_decref(map);
		return NULL;
	}
	json_object_foreach (json_object_get(map, "sources"), key, source) {
		if (read_source(source, &nothing) &&
		    (!json_object_get(source, "engine") || engine_of(source)))
			continue;
		fprintf(stderr,
			"rtxg-irq: map %s: source \"%s\": \"register\" needs bar, offset, width "
			"and mask; "
			"\"engine\" is compute, copy_in or copy_out\n",
			path, key);
		json_decref(map);
		return NULL;
	}
	return map;
}

/* A file of the device's folder with one number in it, in hexadecimal or not. */
static long read_sys(const char *device, const char *file)
{
	char path[512], text[32] = "";
	FILE *in;

	snprintf(path, sizeof(path), PCI "/%s/%s", device, file);
	in = fopen(path, "r");
	if (!in)
		return -1;
	if (!fgets(text, sizeof(text), in))
		text[0] = 0;
	fclose(in);
	return strtol(text, NULL, 0);
}

static bool is_of_the_map(const json_t *map, const char *device)
{
	long vendor = read_sys(device, "vendor"), number = read_sys(device, "device");
	char id[32];
	const json_t *one;
	size_t i;

	snprintf(id, sizeof(id), "%04lx:%04lx", vendor, number);
	json_array_foreach (json_object_get(map, "pci"), i, one)
		if (json_is_string(one) && !strcmp(json_string_value(one), id))
			return true;
	return false;
}

static int refused(const char *what, const char *name, const char *source, int err)
{
	fprintf(stderr, "rtxg-irq: %s: source \"%s\" cannot be %s: %s\n", name, source, what,
		strerror(err));
	return -err;
}

/* Binds and sets what was taken. */
static int put(struct run *run, struct taken *taken, bool first)
{
	struct rtxg_irq_bind bind = { .size = sizeof(bind), .id = taken->attach.id };
	struct rtxg_irq_own own = { .size = sizeof(own),
				    .id = taken->attach.id,
				    .mode = run->set->mode,
				    .priority = run->set->priority,
				    .flags = run->set->flags,
				    .pid = run->set->pid,
				    .runtime_ns = run->set->runtime_ns,
				    .period_ns = run->set->period_ns };

	if (run->set->gpu && taken->engine) {
		for (uint32_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++)
			if (engines[i] == taken->engine)
				bind.engine = i;
		snprintf(bind.gpu, sizeof(bind.gpu), "%s", run->set->gpu);
		if (ioctl(run->fd, RTXG_IOC_IRQ_BIND, &bind))
			return refused("bound", taken->attach.name, taken->source, errno);
	} else {
		taken->engine = NULL;
	}
	if (!first || run->set->mode == RTXG_IRQ_KEPT)
		return 0;
	if (!ioctl(run->fd, RTXG_IOC_IRQ_OWN, &own)) {
		taken->owned = true;
		return 0;
	}
	if (errno == EOPNOTSUPP) {
		fprintf(stderr,
			"rtxg-irq: %s: its driver has no thread whose priority could be set; -t "
			"takes its tasklets\n",
			taken->attach.name);
		return 0;
	}
	return refused("set", taken->attach.name, taken->source, errno);
}

/* All sources of one interrupt of the device. */
static int take_interrupt(struct run *run, const char *device, unsigned int irq)
{
	const char *wanted = json_string_value(json_object_get(run->map, "interrupt")), *key;
	unsigned int domain, bus, slot, function;
	bool first = true;
	json_t *source;

	if (sscanf(device, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		return 0;
	json_object_foreach (json_object_get(run->map, "sources"), key, source) {
		struct rtxg_irq_attach attach = { .size = sizeof(attach),
						  .irq = irq,
						  .domain = domain,
						  .bus = bus,
						  .devfn = slot << 3 | function };
		struct taken *more;
		int ret;

		read_source(source, &attach);
		if (!(attach.flags & RTXG_IRQ_F_SOURCE))
			attach.domain = attach.bus = attach.devfn = 0;
		if (ioctl(run->fd, RTXG_IOC_IRQ_ATTACH, &attach)) {
			/* a vector that its driver has not asked for */
			if (errno == ENOENT)
				return 0;
			return refused("taken", device, key, errno);
		}
		if (!strstr(attach.name, wanted)) {
			struct rtxg_irq_detach detach = { .size = sizeof(detach), .id = attach.id };

			ioctl(run->fd, RTXG_IOC_IRQ_DETACH, &detach);
			return 0;
		}
		more = reallocarray(run->list, run->count + 1, sizeof(*more));
		if (!more)
			return -ENOMEM;
		run->list = more;
		more[run->count] = (struct taken){ .attach = attach,
						   .source = key,
						   .engine = engine_of(source) };
		ret = put(run, &more[run->count++], first);
		if (ret)
			return ret;
		first = false;
	}
	return 0;
}

static int take_device(struct run *run, const char *device)
{
	char path[512];
	struct dirent *entry;
	DIR *vectors;
	long line;
	int ret = 0;

	snprintf(path, sizeof(path), PCI "/%s/msi_irqs", device);
	vectors = opendir(path);
	if (!vectors) {
		line = read_sys(device, "irq");
		return line > 0 ? take_interrupt(run, device, (unsigned int)line) : 0;
	}
	while (!ret && (entry = readdir(vectors)))
		if (entry->d_name[0] != '.')
			ret = take_interrupt(run, device,
					     (unsigned int)strtoul(entry->d_name, NULL, 10));
	closedir(vectors);
	return ret;
}

static int take_all(struct run *run)
{
	struct dirent *entry;
	DIR *devices = opendir(PCI);
	int ret = 0;

	if (!devices) {
		fprintf(stderr, "rtxg-irq: " PCI " cannot be read: %s\n", strerror(errno));
		return -errno;
	}
	while (!ret && (entry = readdir(devices)))
		if (entry->d_name[0] != '.' && is_of_the_map(run->map, entry->d_name))
			ret = take_device(run, entry->d_name);
	closedir(devices);
	if (!ret && !run->count)
		return wrong(run->path, "no interrupt of this machine is one of it");
	return ret;
}

static json_t *told(const struct run *run, const struct taken *taken)
{
	struct rtxg_irq_stats stats = { .size = sizeof(stats), .id = taken->attach.id };
	struct rtxg_irq_owner owner = { .size = sizeof(owner), .id = taken->attach.id };
	static const char *const modes[] = { "kept", "fixed", "owner", "aware" };
	json_t *row;

	if (ioctl(run->fd, RTXG_IOC_IRQ_STATS, &stats))
		memset(&stats, 0, sizeof(stats));
	row = json_pack("{s:i s:s s:s s:s? s:I s:I s:I s:b}", "irq", (int)taken->attach.irq, "name",
			taken->attach.name, "source", taken->source, "engine", taken->engine,
			"interrupts", (json_int_t)stats.entries, "events",
			(json_int_t)stats.matched, "unseen", (json_int_t)stats.unseen, "gone",
			(int)stats.gone);
	if (taken->owned && !ioctl(run->fd, RTXG_IOC_IRQ_OWNER, &owner))
		json_object_set_new(
			row, "threads",
			json_pack("{s:s s:i s:i s:i s:i s:f s:I s:I s:I s:i s:I s:I s:I}", "mode",
				  modes[owner.mode < 4 ? owner.mode : 0], "priority",
				  (int)owner.now, "cpu", owner.cpu, "thread", owner.thread, "owner",
				  owner.owner, "owner_s",
				  owner.since_ns ? (double)(rtxg_now_ns() - owner.since_ns) / 1e9
						 : 0.0,
				  "changes", (json_int_t)owner.changes, "runs",
				  (json_int_t)owner.runs, "beside", (json_int_t)owner.beside,
				  "tasklets", owner.tasklets, "redirected",
				  (json_int_t)owner.redirected, "at_once",
				  (json_int_t)owner.at_once, "exhausted",
				  (json_int_t)owner.exhausted));
	return row;
}

static void print_row(const json_t *row)
{
	const json_t *threads = json_object_get(row, "threads");
	const char *engine = json_string_value(json_object_get(row, "engine"));

	printf("%5lld  %-20s %-12s %-9s %11lld %9lld",
	       (long long)json_integer_value(json_object_get(row, "irq")),
	       json_string_value(json_object_get(row, "name")),
	       json_string_value(json_object_get(row, "source")), engine ? engine : "-",
	       (long long)json_integer_value(json_object_get(row, "interrupts")),
	       (long long)json_integer_value(json_object_get(row, "events")));
	if (threads)
		printf("  %s, FIFO %lld, owner %lld for %.1f s, %lld changes, %lld of %lld runs "
		       "beside it, %lld tasklets",
		       json_string_value(json_object_get(threads, "mode")),
		       (long long)json_integer_value(json_object_get(threads, "priority")),
		       (long long)json_integer_value(json_object_get(threads, "owner")),
		       json_number_value(json_object_get(threads, "owner_s")),
		       (long long)json_integer_value(json_object_get(threads, "changes")),
		       (long long)json_integer_value(json_object_get(threads, "beside")),
		       (long long)json_integer_value(json_object_get(threads, "runs")),
		       (long long)json_integer_value(json_object_get(threads, "redirected")));
	printf("\n");
}

static void show(const struct run *run, bool json)
{
	json_t *rows = json_array();
	const json_t *row;
	size_t i;

	for (i = 0; i < run->count; i++)
		json_array_append_new(rows, told(run, &run->list[i]));
	if (json) {
		json_dumpf(rows, stdout, JSON_INDENT(1));
		printf("\n");
	} else {
		printf("  IRQ  NAME                 SOURCE       ENGINE     INTERRUPTS    EVENTS  "
		       "THREADS\n");
		json_array_foreach (rows, i, row)
			print_row(row);
	}
	json_decref(rows);
	fflush(stdout);
}

int irq_set_run(const struct irq_set *set, bool json, double (*wait)(double seconds),
		double seconds)
{
	struct run run = { .set = set, .fd = open("/dev/rtxg", O_RDWR | O_CLOEXEC) };
	int err = errno, ret;
	char path[4096];

	if (run.fd < 0) {
		fprintf(stderr, "rtxg-irq: /dev/rtxg cannot be opened: %s; load rtxg.ko\n",
			strerror(err));
		return err == EACCES || err == EPERM ? 77 : 1;
	}
	run.path = path;
	run.map = read_map(set->map, path, sizeof(path));
	ret = run.map ? take_all(&run) : -EINVAL;
	if (!ret) {
		show(&run, json);
		wait(seconds);
		show(&run, json);
	}
	close(run.fd); /* everything is given back */
	json_decref(run.map);
	free(run.list);
	return ret == -EPERM ? 77 : ret ? 1 : 0;
}
