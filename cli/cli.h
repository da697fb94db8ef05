/* SPDX-License-Identifier: MIT */
/*
 * cli.h - what the subcommands of `rtxg` share. The command line shows and asks; it decides nothing
 * about scheduling and keeps no state: everything it knows it reads from the host (librtxg's
 * control connection) or from /proc.
 */
#ifndef RTXG_CLI_H
#define RTXG_CLI_H

#include <getopt.h>
#include <jansson.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Exit status, as env(1), nice(1) and chrt(1) have them. */
enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,       /* what was asked for could not be done */
	EXIT_USAGE = 2,	       /* the command line is wrong */
	EXIT_RUN_FAILED = 125, /* `run` itself failed */
	EXIT_RUN_NOEXEC = 126, /* the command was found and cannot be executed */
	EXIT_RUN_NOENT = 127,  /* the command was not found */
};

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};

/* Finds argv[1] among the commands of a command ("vgpu" "create") and runs it. */
int run_subcommand(const char *name, const char *summary, const struct command *commands, int argc,
		   char **argv);
/*
 * Names the subcommand in messages ("rtxg vgpu create"); set by main and by subcommands of
 * subcommands.
 */
void command_name(const char *name);
/* One line on stderr: "rtxg run: ...". */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As complain, then "Try 'rtxg run --help'."; returns EXIT_USAGE. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* After getopt has said what is wrong: "Try ..."; returns EXIT_USAGE. */
int option_error(void);
/* The entry in words (null-terminated) that resembles what was typed, or NULL. */
const char *nearest(const char *typed, const char *const *words);
/* The words (null-terminated) with commas between, to be freed; NULL without memory. */
char *join_words(const char *const *words);

/*
 * options.c: values as they are typed. Each returns 0, or -EINVAL after complaining: which option,
 * what was read, what is accepted.
 */
int parse_share(const char *option, const char *text, uint32_t *ppm); /* 40, 40%, 37.5% */
/* 10ms, 1.5s; a unit is needed */
int parse_duration(const char *option, const char *text, uint64_t *ns);
int parse_quota(const char *option, const char *text, uint32_t *ppm,
		uint64_t *period_ns); /* share or 4ms/10ms; or max */
int parse_number(const char *option, const char *text, long min, long max, long *value);
/* 0-3,6 as taskset -c */
int parse_cpus(const char *option, const char *text, cpu_set_t *cpus);
char *format_cpus(const cpu_set_t *cpus, char *buffer, size_t size);
char *format_duration(uint64_t ns, char *buffer, size_t size);
char *format_share(double share, char *buffer, size_t size); /* 0..1 as "40.0%" */

/* Options that every command has, and those of every list. */
#define COMMON_OPTIONS                         \
	{                                      \
		"help", no_argument, NULL, 'h' \
	}
#define LIST_LETTERS "Jno:h"
#define LIST_OPTIONS                                                                  \
	{ "json", no_argument, NULL, 'J' }, { "noheadings", no_argument, NULL, 'n' }, \
		{ "output", required_argument, NULL, 'o' }, COMMON_OPTIONS
#define LIST_HELP                                                                               \
	" -J, --json            print JSON\n"                                                   \
	" -n, --noheadings      no line of headings\n"                                          \
	" -o, --output COLUMNS  these columns, comma-separated; +COLUMNS adds to the default\n" \
	" -h, --help            this text\n"

/* table.c: lists in the manner of util-linux. */
enum column_flags {
	COLUMN_DEFAULT = 1, /* shown without -o */
	COLUMN_RIGHT = 2,   /* a number: to the right, and a number in JSON */
	COLUMN_BOOL = 4,    /* "yes" or "no"; true or false in JSON */
};

struct column {
	const char *name; /* heading, and what -o takes */
	const char *json; /* key in JSON: says the unit */
	unsigned int flags;
	const char *help;
};

struct list_options {
	bool json;
	bool noheadings;
	const char *columns; /* -o */
};

struct list;
/* True if the option letter was one of a list's and has been stored. */
bool list_option(struct list_options *options, int letter);
/* NULL after complaining about an unknown column. columns ends with a NULL name. */
struct list *list_new(const char *json_name, const struct column *columns,
		      const struct list_options *options);
void list_row(struct list *list);
/* A cell of the current row, by the column's heading; does nothing if the column is not shown. */
void list_text(struct list *list, const char *column, const char *text);
void list_format(struct list *list, const char *column, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* 0..1; JSON: the same number */
void list_share(struct list *list, const char *column, double share);
void list_duration(struct list *list, const char *column, uint64_t ns); /* JSON: seconds */
void list_bool(struct list *list, const char *column, bool value);
size_t list_rows(const struct list *list);
int list_print(struct list *list); /* and frees it; EXIT_OK or EXIT_FAILED */
void list_drop(struct list *list); /* frees it unprinted */
/* The part of --help that names the columns. */
void list_help(const struct column *columns);

/*
 * control.c: requests to the host. `request` is stolen. Returns the reply's object (to be freed
 * with json_decref) or NULL after complaining; *error, if not NULL, receives the negative errno.
 */
json_t *control(json_t *request, int *error);
/*
 * As control, and says nothing: for those who explain it better. text receives the host's words
 * (static).
 */
json_t *control_quiet(json_t *request, int *error, const char **text);
uint64_t get_u64(const json_t *object, const char *key);
double get_number(const json_t *object, const char *key);
const char *get_string(const json_t *object, const char *key); /* "" if absent */
bool get_bool(const json_t *object, const char *key);

/* cpu.c: the CPU side of a task. */

/*
 * Policies that only the kernel module has, after those of the kernel (SCHED_*): POLICY_MODULE +
 * enum rtxg_cpu_policy.
 */
#define POLICY_MODULE 1000

struct cpu_settings {
	bool has_policy;
	int policy;				     /* SCHED_* or POLICY_MODULE + */
	int priority;				     /* SCHED_FIFO, SCHED_RR, fp */
	int nice;				     /* as read */
	uint64_t runtime_ns, deadline_ns, period_ns; /* SCHED_DEADLINE, fp, rm, edf */
	uint64_t wcet_ns, suspend_ns;		     /* for admission */
	bool hard, partitioned, has_threads, first_thread;
	int partition; /* CPU; -1: the least loaded */
	bool has_affinity;
	cpu_set_t affinity;
};

/* Letters and options that `run` and `set` share. */
enum {
	OPT_CPU_POLICY = 1000,
	OPT_CPU_PRIORITY,
	OPT_CPU_RUNTIME,
	OPT_CPU_WCET,
	OPT_CPU_HARD,
	OPT_CPU_PARTITION,
	OPT_CPU_THREADS,
};

/* What a task asks for, on both sides. Zero: not asked for. */
struct task_settings {
	long priority;
	uint64_t runtime_ns, deadline_ns, period_ns; /* of a job on the GPU */
	struct cpu_settings cpu;
};

#define TASK_OPTIONS                                                                               \
	{ "priority", required_argument, NULL, 'p' }, { "runtime", required_argument, NULL, 'T' }, \
		{ "deadline", required_argument, NULL, 'D' },                                      \
		{ "period", required_argument, NULL, 'P' },                                        \
		{ "affinity", required_argument, NULL, 'c' },                                      \
		{ "cpu-policy", required_argument, NULL, OPT_CPU_POLICY },                         \
		{ "cpu-priority", required_argument, NULL, OPT_CPU_PRIORITY },                     \
		{ "cpu-runtime", required_argument, NULL, OPT_CPU_RUNTIME },                       \
		{ "cpu-wcet", required_argument, NULL, OPT_CPU_WCET },                             \
		{ "cpu-hard", no_argument, NULL, OPT_CPU_HARD },                                   \
		{ "cpu-partition", required_argument, NULL, OPT_CPU_PARTITION },                   \
	{                                                                                          \
		"cpu-threads", required_argument, NULL, OPT_CPU_THREADS                            \
	}
#define TASK_LETTERS "T:D:P:c:"
#define TASK_HELP_CPU                                                                             \
	"CPU:\n"                                                                                  \
	"     --cpu-policy NAME  fifo, rr, deadline, other, batch, idle; with the kernel module " \
	"also fp, rm, edf\n"                                                                      \
	"     --cpu-priority N   of fifo and rr, 1..99; of fp, 1..97\n"                           \
	"     --cpu-runtime TIME of deadline; of fp, rm, edf a budget for each period. Period "   \
	"and deadline are those "                                                                 \
	"above\n"                                                                                 \
	"     --cpu-hard         the budget used up, not to run at all until the next period "    \
	"(else: in the "                                                                          \
	"background)\n"                                                                           \
	"     --cpu-wcet TIME    CPU time that a job needs at most, where it has no budget: for " \
	"admission\n"                                                                             \
	"     --cpu-partition CPU  to stay on that CPU; 'auto': the least loaded one\n"           \
	"     --cpu-threads WHICH  fp, rm, edf: 'all', the process is one task (default), or "    \
	"'first'\n"                                                                               \
	" -c, --affinity LIST    CPUs it may run on, as 0-3,6\n\n"

/* 0: taken; 1: not one of these options; negative errno after complaining. */
int task_option(struct task_settings *task, int letter);
/* Whether the values fit together; completes task->cpu. Complains. */
int task_check(struct task_settings *task);

int parse_cpu_policy(const char *option, const char *text, int *policy);
const char *cpu_policy_name(int policy);
/* Whether the parts fit together; complains. */
int cpu_check(struct cpu_settings *settings);
/*
 * Applies to a thread (0: the caller). Negative errno after saying what the machine forbids, and
 * the remedy.
 */
int cpu_apply(pid_t pid, const struct cpu_settings *settings);
/* Whether it goes through the module, and so to the whole task at once. */
bool cpu_by_module(const struct cpu_settings *settings);
/* The same for all threads of a process; on failure none has changed. */
struct cpu_undo;
int cpu_apply_process(pid_t pid, const struct cpu_settings *settings, struct cpu_undo **undo);
/* Makes what cpu_apply_process changed what it was (back), and frees it. */
void cpu_undo(struct cpu_undo *undo, bool back);
/* Fills in what a process that the module schedules has, where nothing else was asked for. */
void cpu_inherit(pid_t pid, struct cpu_settings *settings);
/*
 * What the module knows of a thread; negative errno, without a word: -ENOENT, it does not schedule
 * it.
 */
struct rtxg_cpu_task;
struct rtxg_cpu_stats;
int cpu_module_read(pid_t pid, struct rtxg_cpu_task *task, struct rtxg_cpu_stats *stats);
int cpu_module_policy(const struct rtxg_cpu_task *task);
/* What a thread has. Negative errno, without a word. */
int cpu_read(pid_t pid, struct cpu_settings *settings);
/* Tries a policy in a child and says in `why` what forbids it. 0 if permitted. */
int cpu_probe(int policy, char *why, size_t size);

/* proc.c: processes. */
struct gpu_user {
	pid_t pid;
	uid_t uid;
	char command[17];
	char uses[96]; /* what shows that it uses a GPU: device files and libraries */
};

struct gpu_users {
	struct gpu_user *list;
	size_t count;
	size_t unseen; /* processes that could not be looked into */
};
int gpu_users_read(struct gpu_users *users);
void gpu_users_free(struct gpu_users *users);
int process_name(pid_t pid, char *name, size_t size); /* -ESRCH if there is none */
const char *user_name(uid_t uid);
/* Writes the directory of this program, without a final slash. */
int program_directory(char *path, size_t size);

/* layer.c: where the OpenCL layer is. */
int find_opencl_layer(char *path, size_t size); /* -ENOENT */

int cmd_run(int argc, char **argv);
int cmd_set(int argc, char **argv);
int cmd_get(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_vgpu(int argc, char **argv);
int cmd_gpu(int argc, char **argv);
int cmd_host(int argc, char **argv);
int cmd_history(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_limits(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

#endif
