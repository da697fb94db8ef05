// SPDX-License-Identifier: MIT
/*
 * order_run.c - `rtxg order record` and `rtxg order run`: a program is started, and what came of it
 * is said. Its exit status is kept, unless the order could not be followed.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rtxg.h>
#include <rtxg_order.h>

#include "command.h"
#include "message.h"
#include "order.h"
#include "value.h"
#include "words.h"

#define ACCESSES_DEFAULT 4000000l
#define ACCESSES_MOST	 100000000l

enum {
	OPT_NO_LOCKS = 256,
	OPT_ACCESSES,
	OPT_HOST,
	OPT_PATIENCE,
	OPT_COUNTS,
};

struct variables {
	char *names[RTX_ORDER_VARIABLES];
	uint32_t count;
};

static int take_variable(struct variables *variables)
{
	if (variables->count == RTX_ORDER_VARIABLES) {
		message_error("--variable: more than %u; name fewer, or '*'", RTX_ORDER_VARIABLES);
		return -EINVAL;
	}
	variables->names[variables->count++] = optarg;
	return 0;
}

/* --- record ----------------------------------------------------------------------------------- */

static const struct option record_options[] = {
	{ "output", required_argument, NULL, 'o' },
	{ "variable", required_argument, NULL, 'v' },
	{ "no-locks", no_argument, NULL, OPT_NO_LOCKS },
	{ "accesses", required_argument, NULL, OPT_ACCESSES },
	COMMON_OPTIONS,
	{ 0 },
};

static const char record_help[] =
	"Usage: rtxg order record [OPTION...] [--] PROGRAM [ARGUMENT...]\n\n"
	"Runs a program and writes the order of its shared accesses, for 'rtxg order run'. The\n"
	"program is built with the flags that 'rtxg order flags' prints; its sources stay as\n"
	"they are. Its exit status is kept.\n\n"
	" -o, --output FILE      where to (default: the program's name and .order)\n"
	" -v, --variable NAME    accesses to this variable count; as often as wanted (default:\n"
	"                        '*', all memory but the stack of the thread itself)\n"
	"     --no-locks         steps of mutexes, conditions and semaphores do not count\n"
	"     --accesses N       room for so many, 1..100000000 (default 4000000)\n"
	" -h, --help             this text\n\n"
	"Exit status: the program's; 125 if rtxg failed, 126 if the program cannot be executed,\n"
	"127 if it was not found.\n";

struct recording {
	struct variables variables;
	const char *output;
	bool no_locks;
	long accesses;
};

static int write_order(const struct rtx_order_file *file, const char *path)
{
	FILE *out = fopen(path, "we");
	int err;

	if (!out) {
		message_error("%s: %s", path, strerror(errno));
		return -1;
	}
	err = rtx_lib_order_file_write(file, out);
	if (fclose(out) || err) {
		message_error("%s: %s", path, strerror(errno));
		return -1;
	}
	return 0;
}

static int save_record(const struct order_program *program, const struct recording *record)
{
	static char star[] = "*";
	struct rtx_order_file file = { .locks = !record->no_locks };
	const char *name = strrchr(program->path, '/');
	char path[300];
	int err;

	name = name ? name + 1 : program->path;
	snprintf(path, sizeof(path), "%.250s.order", name);
	if (order_derive(program, &file)) {
		rtx_lib_order_file_free(&file);
		return -1;
	}
	file.program = strdup(name);
	for (uint32_t i = 0; i < record->variables.count; i++)
		file.variable[file.variables++] = strdup(record->variables.names[i]);
	if (!file.variables)
		file.variable[file.variables++] = strdup(star);
	err = write_order(&file, record->output ? record->output : path);
	if (!err)
		fprintf(stderr, "%s: %u threads, %u entries\n",
			record->output ? record->output : path, file.shape.threads,
			file.shape.entries);
	rtx_lib_order_file_free(&file);
	return err;
}

/* Words about what the record lacks. */
static void say_limits(const struct area *area, long room)
{
	if (area->events > (uint64_t)room)
		message_error("the program made %llu accesses, the record holds the first %ld; "
			      "--accesses gives it more room",
			      (unsigned long long)area->events, room);
	if (area->too_many)
		message_error("more than %u threads made accesses; those of the others are free",
			      RTXG_ORDER_THREADS_MAX);
}

static int record_program(const struct recording *record, char **argv)
{
	static char all[] = "*", *const all_names[] = { all };
	struct order_program program;
	int status = order_program_open(&program, argv[0]);

	if (!status)
		status = order_program_share(&program, AREA_RECORD,
					     (size_t)record->accesses * sizeof(struct area_event));
	if (!status)
		status = record->variables.count
				 ? order_program_variables(&program, record->variables.names,
							   record->variables.count)
				 : order_program_variables(&program, all_names, 1);
	if (!status) {
		program.area->locks = !record->no_locks;
		program.area->event_at = sizeof(*program.area);
		program.area->event_room = (uint64_t)record->accesses;
		status = order_program_run(&program, argv);
		say_limits(program.area, record->accesses);
		if (!order_program_attached(&program) || save_record(&program, record))
			status = EXIT_RUN_FAILED;
	}
	order_program_close(&program);
	return status;
}

int order_record(int argc, char **argv)
{
	struct recording record = { .accesses = ACCESSES_DEFAULT };
	int letter;

	while ((letter = getopt_long(argc, argv, "+o:v:h", record_options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			fputs(record_help, stdout);
			return EXIT_OK;
		case 'o':
			record.output = optarg;
			break;
		case 'v':
			if (take_variable(&record.variables))
				return EXIT_RUN_FAILED;
			break;
		case OPT_NO_LOCKS:
			record.no_locks = true;
			break;
		case OPT_ACCESSES:
			if (value_number("--accesses", optarg, 1, ACCESSES_MOST, &record.accesses))
				return EXIT_RUN_FAILED;
			break;
		default:
			message_try_help();
			return EXIT_RUN_FAILED;
		}
	}
	if (optind == argc) {
		message_usage("which program? As in 'rtxg order record -- PROGRAM'");
		return EXIT_RUN_FAILED;
	}
	return record_program(&record, argv + optind);
}

/* --- run -------------------------------------------------------------------------------------- */

static const struct option run_options[] = {
	{ "variable", required_argument, NULL, 'v' },
	{ "host", required_argument, NULL, OPT_HOST },
	{ "patience", required_argument, NULL, OPT_PATIENCE },
	{ "counts", no_argument, NULL, OPT_COUNTS },
	COMMON_OPTIONS,
	{ 0 },
};

static const char run_help[] =
	"Usage: rtxg order run [OPTION...] ORDER [--] PROGRAM [ARGUMENT...]\n\n"
	"Runs a program so that its threads follow an order. The program is built with the flags\n"
	"that 'rtxg order flags' prints. Its exit status is kept.\n\n"
	" -v, --variable NAME    accesses to this variable count; as often as wanted (default: as\n"
	"                        the order says)\n"
	"     --host NAME        how threads wait: futex (default), shared, opt, and with rtxg.ko\n"
	"                        proto-1 to proto-6\n"
	"     --patience TIME    how long nothing may move until the order is given up, 1ms..1h\n"
	"                        (default 10s)\n"
	"     --counts           say how many accesses were restricted, and what that took\n"
	" -h, --help             this text\n\n"
	"An order that cannot be followed is given up: the program goes on without it, and the\n"
	"access at fault is said at the end.\n\n"
	"Exit status: the program's; 125 if rtxg failed or the order was given up, 126 if the\n"
	"program cannot be executed, 127 if it was not found.\n";

struct run_settings {
	struct variables variables;
	const char *order;
	uint32_t host;
	uint64_t patience_ns;
	bool counts;
};

static int take_host(struct run_settings *settings)
{
	const char *names[RTX_ORDER_HOSTS + 1] = { NULL };
	char *accepted;

	for (uint32_t i = 0; i < RTX_ORDER_HOSTS; i++) {
		names[i] = rtx_order_host_name(i);
		settings->host = i;
		if (strcmp(names[i], optarg) == 0)
			return 0;
	}
	accepted = words_join(names);
	message_error("--host: '%s' is not accepted; accepted: %s", optarg,
		      accepted ? accepted : "");
	free(accepted);
	return -EINVAL;
}

static int take_patience(struct run_settings *settings)
{
	if (value_duration("--patience", optarg, &settings->patience_ns))
		return -EINVAL;
	if (settings->patience_ns >= 1000000ull && settings->patience_ns <= 3600000000000ull)
		return 0;
	message_error("--patience: %s is out of range; 1ms to 1h are accepted", optarg);
	return -EINVAL;
}

/* The order behind the area, and its threads in it. */
static void put_order(struct area *area, const struct rtx_order_file *file)
{
	size_t entries = file->shape.entries * sizeof(*file->entry);

	area->shape = file->shape;
	area->entry_at = sizeof(*area);
	area->need_at = area->entry_at + entries;
	if (file->shape.entries)
		memcpy((char *)area + area->entry_at, file->entry, entries);
	if (file->shape.needs)
		memcpy((char *)area + area->need_at, file->need,
		       file->shape.needs * sizeof(*file->need));
	for (uint32_t t = 0; t < file->shape.threads; t++) {
		memcpy(area->thread[t].name, file->name[t], RTX_ORDER_NAME);
		area->thread[t].most = file->accesses[t];
		area->thread[t].cut = file->cut[t];
	}
	area->threads = file->shape.threads;
	area->locks = file->locks;
	area->others_free = file->others_free;
	area->others_last = file->others_last;
}

static void say_counts(const struct area *area)
{
	uint64_t accesses = 0;

	for (uint32_t t = 0; t < RTXG_ORDER_THREADS_MAX; t++)
		accesses += area->thread[t].accesses;
	fprintf(stderr,
		"%llu accesses, %llu restricted, %llu waited, %llu slept; calls of the module: "
		"%llu context_switch, %llu signal_all, %llu set_clock\n",
		(unsigned long long)accesses, (unsigned long long)area->restricted,
		(unsigned long long)area->waits, (unsigned long long)area->sleeps,
		(unsigned long long)area->context_switches, (unsigned long long)area->signals,
		(unsigned long long)area->clocks);
}

/*
 * Whether the module takes the order, asked before the program begins. The order goes to the
 * library as a file: where it came from may be a pipe, which was read.
 */
static int ask_module(const struct run_settings *settings, const struct rtx_order_file *file)
{
	struct rtx_order_options options = { .size = sizeof(options), .host = settings->host };
	rtx_order_t order = NULL;
	char path[64];
	FILE *copy;
	int err, fd;

	if (settings->host < RTX_ORDER_PROTO_1 || settings->host > RTX_ORDER_PROTO_6)
		return 0;
	fd = memfd_create("order", MFD_CLOEXEC);
	copy = fd < 0 ? NULL : fdopen(fd, "w");
	if (!copy || rtx_lib_order_file_write(file, copy) || fflush(copy)) {
		message_error("no memory for a copy of %s: %s", settings->order, strerror(errno));
		return -ENOMEM;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	err = rtx_order_open(&order, path, &options);
	if (err)
		message_error("%s", rtx_strerror());
	rtx_order_close(order);
	fclose(copy);
	return err;
}

static int follow(const struct run_settings *settings, const struct rtx_order_file *file,
		  struct order_program *program, char **argv)
{
	int status = order_program_open(program, argv[0]);

	if (!status)
		status = order_program_share(program, AREA_RUN,
					     file->shape.entries * sizeof(*file->entry) +
						     file->shape.needs * sizeof(*file->need));
	if (!status)
		status =
			settings->variables.count
				? order_program_variables(program, settings->variables.names,
							  settings->variables.count)
				: order_program_variables(program, file->variable, file->variables);
	if (status)
		return status;
	if (ask_module(settings, file))
		return EXIT_RUN_FAILED;
	put_order(program->area, file);
	program->area->host = settings->host;
	program->area->patience_ns = settings->patience_ns;
	status = order_program_run(program, argv);
	if (!order_program_attached(program))
		return EXIT_RUN_FAILED;
	if (settings->counts)
		say_counts(program->area);
	if (!program->area->broken)
		return status;
	message_error("%s was given up: %.499s", settings->order, program->area->words);
	return EXIT_RUN_FAILED;
}

static int run_program(struct run_settings *settings, char **argv)
{
	struct order_program program = { .fd = -1 };
	struct rtx_order_file file;
	struct rtxg_order order;
	void *memory = NULL;
	int status = EXIT_RUN_FAILED;

	if (rtx_lib_order_file_read(&file, settings->order) ||
	    rtx_lib_order_file_load(&file, settings->order, &order, &memory)) {
		message_error("%s", file.error);
	} else if (!file.variables && !settings->variables.count) {
		message_error("%s does not say whose accesses count; say it with --variable",
			      settings->order);
	} else {
		status = follow(settings, &file, &program, argv);
		order_program_close(&program);
	}
	free(memory);
	rtx_lib_order_file_free(&file);
	return status;
}

int order_run(int argc, char **argv)
{
	struct run_settings settings = { .patience_ns = 10000000000ull };
	int letter;

	while ((letter = getopt_long(argc, argv, "+v:h", run_options, NULL)) != -1) {
		int err = 0;

		switch (letter) {
		case 'h':
			fputs(run_help, stdout);
			return EXIT_OK;
		case 'v':
			err = take_variable(&settings.variables);
			break;
		case OPT_HOST:
			err = take_host(&settings);
			break;
		case OPT_PATIENCE:
			err = take_patience(&settings);
			break;
		case OPT_COUNTS:
			settings.counts = true;
			break;
		default:
			message_try_help();
			return EXIT_RUN_FAILED;
		}
		if (err)
			return EXIT_RUN_FAILED;
	}
	if (optind < argc)
		settings.order = argv[optind++];
	if (optind < argc && strcmp(argv[optind], "--") == 0)
		optind++;
	if (optind == argc) {
		message_usage("an order and a program are needed, as in 'rtxg order run bug.order "
			      "-- PROGRAM'");
		return EXIT_RUN_FAILED;
	}
	return run_program(&settings, argv + optind);
}
