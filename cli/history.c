// SPDX-License-Identifier: MIT
/*
 * history.c - `rtxg history`: what each vGPU used in each slot of 100 ms, as CSV or JSON lines, for plots and for blame
 * afterwards. With -f it goes on as slots are completed; the host keeps the last minute, so a reader that sleeps for less
 * misses nothing.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "cli.h"

static const struct option options[] = {
	{ "follow", no_argument, NULL, 'f' },
	{ "duration", required_argument, NULL, 'd' },
	{ "gpu", required_argument, NULL, 'g' },
	{ "json", no_argument, NULL, 'J' },
	{ "noheadings", no_argument, NULL, 'n' },
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
			double completions =
				json_number_value(json_array_get(json_object_get(series, "completions"), slot));
			double start = at(times, slot), length = at(times, slot + 1) - start;

			if (json) {
				json_t *line =
					json_pack("{s:f, s:f, s:O, s:O, s:O, s:f, s:f, s:f, s:f}", "time", start,
						  "seconds", length, "gpu", json_object_get(series, "gpu"), "vgpu",
						  json_object_get(series, "vgpu"), "engine",
						  json_object_get(series, "engine"), "busy", values[0], "device",
						  values[1], "backlogged", values[2], "completions", completions);

				json_dumpf(line, stdout, JSON_COMPACT);
				json_decref(line);
				putchar('\n');
				continue;
			}
			printf("%.3f,%.6f,", start, length);
			csv_text(get_string(series, "gpu"));
			putchar(',');
			csv_text(get_string(series, "vgpu"));
			printf(",%s,%.6f,%.6f,%.6f,%.0f\n", get_string(series, "engine"), values[0], values[1],
			       values[2], completions);
		}
	}
}

int cmd_history(int argc, char **argv)
{
	bool follow = false, json = false, headings = true;
	uint64_t next = 0, duration = 0;
	const char *gpu = NULL;
	struct timespec begin, now;
	bool first = true;
	int letter;

	while ((letter = getopt_long(argc, argv, "fd:g:Jnh", options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			fputs("Usage: rtxg history [OPTION...]\n\n"
			      "Prints what each vGPU used in each slot of 100 ms over the last minute, as CSV.\n\n"
			      " -f, --follow         go on as time does\n"
			      " -d, --duration TIME  begin now, go on for that long, as 20s\n"
			      " -g, --gpu NAME       this GPU only\n"
			      " -J, --json           one JSON object a line\n"
			      " -n, --noheadings     no line of headings\n"
			      " -h, --help           this text\n\n"
			      "Columns: time (start of the slot, CLOCK_MONOTONIC seconds), seconds (its length), gpu, "
			      "vgpu, engine, busy (seconds\n"
			      "charged), device (seconds by the programs' own events), backlogged (seconds in which it "
			      "held or waited for the\n"
			      "engine), completions.\n",
			      stdout);
			return EXIT_OK;
		case 'f':
			follow = true;
			break;
		case 'd':
			if (parse_duration("--duration", optarg, &duration))
				return EXIT_USAGE;
			follow = true;
			break;
		case 'g':
			gpu = optarg;
			break;
		case 'J':
			json = true;
			break;
		case 'n':
			headings = false;
			break;
		default:
			return option_error();
		}
	}
	if (optind < argc)
		return usage_error("'%s': no argument is accepted", argv[optind]);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (;;) {
		json_t *request = json_pack("{s:s}", "op", "history"), *reply;

		if (gpu)
			json_object_set_new(request, "gpu", json_string(gpu));
		if (!first)
			json_object_set_new(request, "since", json_integer((json_int_t)next));
		reply = control(request, NULL);
		if (!reply)
			return EXIT_FAILED;
		if (first && headings && !json)
			puts("time,seconds,gpu,vgpu,engine,busy,device,backlogged,completions");
		/* With a duration, what lies before the start is not asked for. */
		if (!first || !duration)
			print_slots(reply, json);
		next = get_u64(reply, "next");
		json_decref(reply);
		first = false;
		if (fflush(stdout) != 0) {
			complain("writing: %s", strerror(errno));
			return EXIT_FAILED;
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (!follow ||
		    (duration && (uint64_t)(now.tv_sec - begin.tv_sec) * 1000000000ull + (uint64_t)now.tv_nsec >=
					 duration + (uint64_t)begin.tv_nsec))
			return EXIT_OK;
		nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
	}
}
