// SPDX-License-Identifier: MIT
/*
 * history.c - `rtxg history`: what each vGPU used in each slot of 100 ms, as CSV or JSON lines, for
 * plots and for blame afterwards. With -f it goes on as slots are completed; the host keeps the
 * last minute, so a reader that sleeps for less misses nothing. --trace records who held which GPU
 * when, of the processes that the NVIDIA lever governs, as a trace for Perfetto.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <rtxg_clock.h>

#include "command.h"
#include "commands.h"
#include "control.h"
#include "message.h"
#include "reply.h"
#include "value.h"

static const struct option options[] = {
	{ "follow", no_argument, NULL, 'f' },
	{ "duration", required_argument, NULL, 'd' },
	{ "gpu", required_argument, NULL, 'g' },
	{ "json", no_argument, NULL, 'J' },
	{ "noheadings", no_argument, NULL, 'n' },
	{ "trace", required_argument, NULL, 't' },
	COMMON_OPTIONS,
	{ 0 },
};

static double at(const json_t *array, size_t index)
{
	return json_number_value(json_array_get(array, index)) / 1e9;
}

/* Names may hold commas ("opencl:..." is the driver's word): quoted as RFC 4180 has it. */
static void csv_text(const char *text)
{
	if (!strpbrk(text, ",\"\n")) {
		fputs(text, stdout);
		return;
	}
	putchar('"');
	for (; *text; text++) {
		if (*text == '"')
			putchar('"');
		putchar(*text);
	}
	putchar('"');
}

static void print_slots(const json_t *reply, bool json)
{
	const json_t *times = json_object_get(reply, "times_ns"), *series;
	size_t count = json_array_size(times), index;

	for (size_t slot = 0; slot + 1 < count; slot++) {
		json_array_foreach (json_object_get(reply, "series"), index, series) {
			double values[] = { at(json_object_get(series, "busy_ns"), slot),
					    at(json_object_get(series, "device_ns"), slot),
					    at(json_object_get(series, "backlogged_ns"), slot) };
			double completions = json_number_value(
				json_array_get(json_object_get(series, "completions"), slot));
			double start = at(times, slot), length = at(times, slot + 1) - start;

			if (json) {
				json_t *line =
					json_pack("{s:f, s:f, s:O, s:O, s:O, s:f, s:f, s:f, s:f}",
						  "time", start, "seconds", length, "gpu",
						  json_object_get(series, "gpu"), "vgpu",
						  json_object_get(series, "vgpu"), "engine",
						  json_object_get(series, "engine"), "busy",
						  values[0], "device", values[1], "backlogged",
						  values[2], "completions", completions);

				json_dumpf(line, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
				json_decref(line);
				putchar('\n');
				continue;
			}
			printf("%.3f,%.6f,", start, length);
			csv_text(reply_string(series, "gpu"));
			putchar(',');
			csv_text(reply_string(series, "vgpu"));
			printf(",%s,%.6f,%.6f,%.6f,%.0f\n", reply_string(series, "engine"),
			       values[0], values[1], values[2], completions);
		}
	}
}

/* --- a trace for ui.perfetto.dev -------------------------------------------------------------- */

/*
 * Perfetto's TrackEvent format, of which a few fields are needed: a field is a key (number << 3 |
 * wire type), then a number in groups of seven bits, or a length and bytes.
 */
struct bytes {
	unsigned char data[512];
	size_t size;
};

static void add_number(struct bytes *b, uint64_t value)
{
	while (value > 0x7f) {
		b->data[b->size++] = (unsigned char)(value | 0x80);
		value >>= 7;
	}
	b->data[b->size++] = (unsigned char)value;
}

static void field_number(struct bytes *b, unsigned int field, uint64_t value)
{
	add_number(b, field << 3);
	add_number(b, value);
}

static void field_bytes(struct bytes *b, unsigned int field, const void *data, size_t size)
{
	add_number(b, field << 3 | 2);
	add_number(b, size);
	memcpy(b->data + b->size, data, size);
	b->size += size;
}

static void field_text(struct bytes *b, unsigned int field, const char *text)
{
	field_bytes(b, field, text, strlen(text));
}

/*
 * TracePacket: 6 clock_snapshot, 8 timestamp, 58 its clock (3 = monotonic), 10 our sequence, 11
 * track_event, 60 track_descriptor.
 */
static void write_packet(FILE *out, struct bytes *packet)
{
	struct bytes whole = { 0 };

	field_number(packet, 10, 1);
	field_bytes(&whole, 1, packet->data, packet->size);
	fwrite(whole.data, 1, whole.size, out);
}

/*
 * How the clocks stood to each other. Without that a reader takes times to be those of the boot
 * clock, and throws away what has another (ClockSnapshot: 1 clocks, 2 the trace's own; Clock: 1 id,
 * 2 its time).
 */
static void write_clocks(FILE *out)
{
	static const struct {
		clockid_t clock;
		unsigned int id;
	} clocks[] = { { CLOCK_BOOTTIME, 6 }, { CLOCK_MONOTONIC, 3 }, { CLOCK_REALTIME, 1 } };
	struct bytes packet = { 0 }, snapshot = { 0 };
	struct timespec now;

	for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
		struct bytes clock = { 0 };

		clock_gettime(clocks[i].clock, &now);
		field_number(&clock, 1, clocks[i].id);
		field_number(&clock, 2,
			     (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec);
		field_bytes(&snapshot, 1, clock.data, clock.size);
	}
	field_number(&snapshot, 2, 3);
	field_bytes(&packet, 6, snapshot.data, snapshot.size);
	write_packet(out, &packet);
}

/* TrackEvent: 9 type (1 begin, 2 end), 11 track, 23 name. */
static void write_event(FILE *out, uint64_t at_ns, unsigned int type, uint64_t track,
			const char *name)
{
	struct bytes packet = { 0 }, event = { 0 };

	field_number(&event, 9, type);
	field_number(&event, 11, track);
	if (name)
		field_text(&event, 23, name);
	field_number(&packet, 8, at_ns);
	field_number(&packet, 58, 3);
	field_bytes(&packet, 11, event.data, event.size);
	write_packet(out, &packet);
}

/*
 * A track of a process on a GPU, declared when it is first used (TrackDescriptor: 1 uuid, 2 name).
 * Names of processes are kept in names.
 */
static uint64_t track_of(FILE *out, json_t *tracks, const json_t *names, const char *kind,
			 const json_t *e)
{
	struct bytes packet = { 0 }, descriptor = { 0 };
	char key[100], pid[24], title[140];
	const char *name;
	uint64_t uuid;

	snprintf(pid, sizeof(pid), "%.0f", reply_number(e, "pid"));
	snprintf(key, sizeof(key), "%s %s %s", kind, reply_string(e, "gpu"), pid);
	uuid = reply_u64(tracks, key);
	if (uuid)
		return uuid;
	uuid = json_object_size(tracks) + 1;
	json_object_set_new(tracks, key, json_integer((json_int_t)uuid));
	name = reply_string(names, pid);
	snprintf(title, sizeof(title), "%s %s%s%s", kind, reply_string(e, "gpu"),
		 name[0] ? " " : "", name);
	snprintf(title + strlen(title), sizeof(title) - strlen(title), " %s", pid);
	field_number(&descriptor, 1, uuid);
	field_text(&descriptor, 2, title);
	field_bytes(&packet, 60, descriptor.data, descriptor.size);
	write_packet(out, &packet);
	return uuid;
}

static void trace_events(FILE *out, json_t *tracks, json_t *names, const json_t *reply,
			 const char *gpu)
{
	const json_t *e;
	size_t index;

	json_array_foreach (json_object_get(reply, "events"), index, e) {
		const char *kind = reply_string(e, "kind");
		char label[64], pid[24];
		uint64_t track;

		snprintf(pid, sizeof(pid), "%.0f", reply_number(e, "pid"));
		if (strcmp(kind, "came") == 0)
			json_object_set_new(names, pid, json_string(reply_string(e, "comm")));
		if (strcmp(kind, "came") == 0 || strcmp(kind, "went") == 0 ||
		    (gpu && strcmp(gpu, reply_string(e, "gpu")) != 0))
			continue;
		track = track_of(out, tracks, names, strcmp(kind, "stay") == 0 ? "on" : "lever", e);
		if (strcmp(kind, "stay") == 0)
			snprintf(label, sizeof(label), "vGPU %.50s", reply_string(e, "vgpu"));
		else if (strcmp(kind, "slice") == 0)
			snprintf(label, sizeof(label), "slice %.0f us",
				 reply_number(e, "slice_ns") / 1000);
		else
			snprintf(label, sizeof(label), "%.50s", kind);
		write_event(out, reply_u64(e, "start_ns"), 1, track, label);
		write_event(out, reply_u64(e, "end_ns"), 2, track, NULL);
	}
}

/* From what the host remembers, or with a duration from now on. */
static int write_trace(const char *path, const char *gpu, uint64_t duration_ns)
{
	json_t *tracks = json_object(), *names = json_object(), *reply;
	uint64_t begin;
	FILE *out = fopen(path, "we");
	uint64_t next = 0, lost = 0;
	bool first = true, failed = false;

	if (!out) {
		message_error("%s: %s", path, strerror(errno));
		json_decref(tracks);
		json_decref(names);
		return EXIT_FAILED;
	}
	write_clocks(out);
	begin = rtxg_now_ns();
	for (;;) {
		reply = control_ask(
			json_pack("{s:s, s:I}", "op", "timeline", "since", (json_int_t)next), NULL);
		if (!reply) {
			failed = true;
			break;
		}
		if (!first && reply_u64(reply, "first") > next)
			lost += reply_u64(reply, "first") - next;
		/*
		 * With a duration, what lies before the start is only read for the names of
		 * processes.
		 */
		if (first && duration_ns) {
			const json_t *e;
			size_t index;

			json_array_foreach (json_object_get(reply, "events"), index, e)
				if (strcmp(reply_string(e, "kind"), "came") == 0) {
					char pid[24];

					snprintf(pid, sizeof(pid), "%.0f", reply_number(e, "pid"));
					json_object_set_new(names, pid,
							    json_string(reply_string(e, "comm")));
				}
		} else {
			trace_events(out, tracks, names, reply, gpu);
		}
		next = reply_u64(reply, "next");
		json_decref(reply);
		first = false;
		if (rtxg_now_ns() - begin >= duration_ns)
			break;
		nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
	}
	if (!failed && json_object_size(tracks) == 0)
		message_error(
			"%s: no events: the host governs no NVIDIA GPU, or no program used one",
			path);
	if (lost)
		message_error("%s: %llu events were lost", path, (unsigned long long)lost);
	json_decref(tracks);
	json_decref(names);
	if (fclose(out) != 0) {
		message_error("%s: %s", path, strerror(errno));
		return EXIT_FAILED;
	}
	return failed ? EXIT_FAILED : EXIT_OK;
}

int cmd_history(int argc, char **argv)
{
	bool follow = false, json = false, headings = true;
	uint64_t next = 0, duration = 0;
	const char *gpu = NULL, *trace = NULL;
	uint64_t begin;
	bool first = true;
	int letter;

	while ((letter = getopt_long(argc, argv, "fd:g:Jnt:h", options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			fputs("Usage: rtxg history [OPTION...]\n\n"
			      "Prints what each vGPU used in each slot of 100 ms over the last "
			      "minute, as CSV.\n\n"
			      " -f, --follow         go on as time does\n"
			      " -d, --duration TIME  begin now, go on for that long, as 20s\n"
			      " -g, --gpu NAME       this GPU only\n"
			      " -J, --json           one JSON object a line\n"
			      " -n, --noheadings     no line of headings\n"
			      " -t, --trace FILE     instead, who held an NVIDIA GPU when, for "
			      "ui.perfetto.dev: all "
			      "that the host "
			      "remembers,\n"
			      "                      or with -d from now on\n"
			      " -h, --help           this text\n\n"
			      "Columns: time (start of the slot, CLOCK_MONOTONIC seconds), seconds "
			      "(its length), gpu, "
			      "vgpu, engine, busy (seconds\n"
			      "charged), device (seconds by the programs' own events), backlogged "
			      "(seconds in which it "
			      "held or waited for the\n"
			      "engine), completions.\n",
			      stdout);
			return EXIT_OK;
		case 'f':
			follow = true;
			break;
		case 'd':
			if (value_duration("--duration", optarg, &duration))
				return EXIT_USAGE;
			follow = true;
			break;
		case 'g':
			gpu = optarg;
			break;
		case 't':
			trace = optarg;
			break;
		case 'J':
			json = true;
			break;
		case 'n':
			headings = false;
			break;
		default:
			return message_try_help();
		}
	}
	if (optind < argc)
		return message_usage("'%s': no argument is accepted", argv[optind]);
	if (trace)
		return write_trace(trace, gpu, duration);
	begin = rtxg_now_ns();
	for (;;) {
		json_t *request = json_pack("{s:s}", "op", "history"), *reply;

		if (gpu)
			json_object_set_new(request, "gpu", json_string(gpu));
		if (!first)
			json_object_set_new(request, "since", json_integer((json_int_t)next));
		reply = control_ask(request, NULL);
		if (!reply)
			return EXIT_FAILED;
		if (first && headings && !json)
			puts("time,seconds,gpu,vgpu,engine,busy,device,backlogged,completions");
		/* With a duration, what lies before the start is not asked for. */
		if (!first || !duration)
			print_slots(reply, json);
		next = reply_u64(reply, "next");
		json_decref(reply);
		first = false;
		if (fflush(stdout) != 0) {
			message_error("writing: %s", strerror(errno));
			return EXIT_FAILED;
		}
		if (!follow || (duration && rtxg_now_ns() - begin >= duration))
			return EXIT_OK;
		nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
	}
}
