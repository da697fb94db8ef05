// SPDX-License-Identifier: MIT
/*
 * settings.c - reads the command line of `rtxg latency`. May not: change anything.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cli/message.h"
#include "../cli/value.h"
#include "histogram.h"
#include "settings.h"
#include "undo.h"

enum {
	OPTION_HELP = 256,
	OPTION_JSON,
	OPTION_POLICY,
	OPTION_PM_QOS,
	OPTION_LAPTOP,
	OPTION_DEFAULT,
	OPTION_GOVERNOR,
	OPTION_IRQ,
	OPTION_USER_ONLY,
	OPTION_EVERY_TASK,
	OPTION_EACH,
	OPTION_GPU,
};

static const struct option options[] = {
	{ "affinity", optional_argument, NULL, 'a' },
	{ "breaktrace", required_argument, NULL, 'b' },
	{ "distance", required_argument, NULL, 'd' },
	{ "duration", required_argument, NULL, 'D' },
	{ "ftrace", no_argument, NULL, 'f' },
	{ "histogram", required_argument, NULL, 'h' },
	{ "interval", required_argument, NULL, 'i' },
	{ "loops", required_argument, NULL, 'l' },
	{ "mlockall", no_argument, NULL, 'm' },
	{ "nanosleep", no_argument, NULL, 'n' },
	{ "priority", required_argument, NULL, 'p' },
	{ "quiet", no_argument, NULL, 'q' },
	{ "smp", no_argument, NULL, 'S' },
	{ "threads", optional_argument, NULL, 't' },
	{ "help", no_argument, NULL, OPTION_HELP },
	{ "json", optional_argument, NULL, OPTION_JSON },
	{ "policy", required_argument, NULL, OPTION_POLICY },
	{ "latency", required_argument, NULL, OPTION_PM_QOS },
	{ "laptop", no_argument, NULL, OPTION_LAPTOP },
	{ "default-system", no_argument, NULL, OPTION_DEFAULT },
	{ "governor", required_argument, NULL, OPTION_GOVERNOR },
	{ "irq", required_argument, NULL, OPTION_IRQ },
	{ "user-only", no_argument, NULL, OPTION_USER_ONLY },
	{ "every-task", no_argument, NULL, OPTION_EVERY_TASK },
	{ "gpu", optional_argument, NULL, OPTION_GPU },
	{ "each", required_argument, NULL, OPTION_EACH },
	{ 0 },
};

static const char help[] =
	"Usage: rtxg latency [OPTION...]\n"
	"       rtxg latency explain -i US [OPTION...] [FILE]\n"
	"       rtxg latency table|record|report [OPTION...]\n\n"
	"Measures how late threads run after the time at which they are to wake, and names what "
	"made the\n"
	"latest wake-up late. The letters are those of cyclictest. Times without a unit are "
	"microseconds.\n\n"
	" -p, --priority PRIO      SCHED_FIFO with this priority, 1 to 99; 0 is SCHED_OTHER (0)\n"
	"     --policy NAME        fifo, rr, other, batch or idle\n"
	" -i, --interval US        period of the threads (1000)\n"
	" -d, --distance US        each further thread has so much longer a period (500; 0 with "
	"-a)\n"
	" -t, --threads [N]        N threads; without N one for each CPU (1)\n"
	" -a, --affinity [CPUS]    thread N runs on the Nth of these CPUs alone, as 2,4-7\n"
	" -S, --smp                as -a -t\n"
	" -m, --mlockall           keep all memory of the program in RAM\n"
	" -n, --nanosleep          accepted: the threads always sleep with clock_nanosleep\n"
	" -f, --ftrace             accepted: what each CPU did is always recorded\n"
	" -D, --duration TIME      end after it, as 30, 10m, 2h or 1d (seconds without a unit)\n"
	" -l, --loops N            end after N cycles of each thread; 0 is without end (0)\n"
	" -h, --histogram US       print a histogram of 1 us bins up to US\n"
	" -b, --breaktrace US      end when a wake-up is later than US: exit status 2\n"
	" -q, --quiet              print at the end only\n"
	"     --json[=FILE]        print JSON, or write it to FILE\n"
	"     --each TIME          print one line of JSON for each such time, as 60\n"
	"     --gpu[=API]          measure from the launch of a small kernel to its end, by cuda "
	"or "
	"opencl\n"
	"     --every-task         measure all real-time tasks of the machine too (needs BPF)\n"
	"     --user-only          measure in the threads alone, without BPF\n"
	"     --latency US         hold /dev/cpu_dma_latency at US (0)\n"
	"     --laptop             leave /dev/cpu_dma_latency alone\n"
	"     --default-system     change no setting of the machine\n"
	"     --governor NAME      use this cpufreq governor during the run\n"
	"     --irq NAME=CPUS      send the interrupts of this name to these CPUs during the run\n"
	"     --help               this text\n\n"
	"Exit status: 0 measured, 1 it could not be measured, 2 a wake-up was later than -b.\n"
	"Settings are put back at the end, also when the program is killed.\n";

/* A wrong command line: status 1, as 2 says that the threshold was passed. */
static int wrong(void)
{
	message_try_help();
	return EXIT_FAILED;
}

/* Seconds, or with m, h, d; also value_duration's units but for a bare m. */
static int read_duration(const char *option, const char *text, uint64_t *ns)
{
	static const struct {
		const char *unit;
		double seconds;
	} units[] = { { "", 1 },     { "s", 1 },    { "m", 60 },
		      { "min", 60 }, { "h", 3600 }, { "d", 86400 } };
	char *end;
	double value = strtod(text, &end);

	if (end != text && value > 0)
		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
			if (!strcmp(end, units[i].unit) && value * units[i].seconds < 4e9 &&
			    value * units[i].seconds >= 1e-3) {
				*ns = (uint64_t)llround(value * units[i].seconds * 1e9);
				return 0;
			}
	message_error("%s: '%s' is not accepted; accepted: 1 ms to 4000000000 s: seconds, or a "
		      "number with s, m, h or d, as 10m",
		      option, text);
	return -EINVAL;
}

static int read_us(const char *option, const char *text, long min, long max, uint64_t *ns)
{
	long us;

	if (value_number(option, text, min, max, &us))
		return -EINVAL;
	*ns = (uint64_t)us * 1000;
	return 0;
}

static int read_policy(const char *text, int *policy)
{
	static const struct {
		const char *name;
		int policy;
	} names[] = { { "fifo", SCHED_FIFO },	 { "rr", SCHED_RR },	   { "other", SCHED_OTHER },
		      { "normal", SCHED_OTHER }, { "batch", SCHED_BATCH }, { "idle", SCHED_IDLE } };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(names[i].name, text)) {
			*policy = names[i].policy;
			return 0;
		}
	message_error("--policy: '%s' is not accepted; accepted: fifo, rr, other, batch, idle",
		      text);
	return -EINVAL;
}

static int read_irq(struct settings *s, const char *text)
{
	const char *equals = strrchr(text, '=');
	struct settings_irq *irq = &s->irqs[s->irq_count];
	char list[256], accepted[256];
	cpu_set_t cpus, missing, all;

	if (s->irq_count == SETTINGS_IRQS) {
		message_error("--irq: at most %d are accepted", SETTINGS_IRQS);
		return -EINVAL;
	}
	if (!equals || equals == text || (size_t)(equals - text) >= sizeof(irq->name) ||
	    strlen(equals + 1) >= sizeof(irq->cpus)) {
		message_error("--irq: '%s' is not NAME=CPUS, as nvidia=2-3", text);
		return -EINVAL;
	}
	memcpy(irq->name, text, (size_t)(equals - text));
	strcpy(irq->cpus, equals + 1);
	s->irq_count++;
	if (value_cpus("--irq", equals + 1, &cpus))
		return -EINVAL;
	if (undo_read_line("/sys/devices/system/cpu/online", accepted, sizeof(accepted)) <= 0 ||
	    value_cpus("CPUs online", accepted, &all))
		return 0; /* the kernel decides */
	CPU_XOR(&missing, &cpus, &all);
	CPU_AND(&missing, &missing, &cpus);
	if (!CPU_COUNT(&missing))
		return 0;
	message_error("--irq: CPU %s does not exist or is offline; accepted: %s",
		      value_format_cpus(&missing, list, sizeof(list)), accepted);
	return -EINVAL;
}

/*
 * The argument of -a and -t may stand apart, as with cyclictest: no other word may, so one that is
 * wrong is theirs.
 */
static const char *optional(int argc, char **argv)
{
	if (optarg)
		return optarg;
	if (optind < argc && argv[optind][0] != '-')
		return argv[optind++];
	return NULL;
}

/* CPUs that exist and that this process may use. */
static int check_cpus(struct settings *s, bool named)
{
	cpu_set_t may, missing;
	char list[256], accepted[256];

	if (sched_getaffinity(0, sizeof(may), &may))
		return -errno;
	if (!named) {
		s->cpus = may;
		return 0;
	}
	CPU_XOR(&missing, &s->cpus, &may);
	CPU_AND(&missing, &missing, &s->cpus);
	if (!CPU_COUNT(&missing))
		return 0;
	message_error("-a: CPU %s does not exist or is not this process's; accepted: %s",
		      value_format_cpus(&missing, list, sizeof(list)),
		      value_format_cpus(&may, accepted, sizeof(accepted)));
	return -EINVAL;
}

static int contradiction(struct settings *s, bool laptop, bool pm_qos, bool plain, bool smp)
{
	bool real_time;

	if (s->policy < 0)
		s->policy = s->priority ? SCHED_FIFO : SCHED_OTHER;
	real_time = s->policy == SCHED_FIFO || s->policy == SCHED_RR;
	if (real_time && !s->priority) {
		message_error("--policy: fifo and rr need a priority; add -p 1 to -p 99");
		return -EINVAL;
	}
	if (!real_time && s->priority) {
		message_error("-p: priority %ld needs the policy fifo or rr; leave out --policy",
			      s->priority);
		return -EINVAL;
	}
	if (smp && s->threads) {
		message_error("-S is one thread for each CPU: leave it out, or -t %ld", s->threads);
		return -EINVAL;
	}
	if (laptop && pm_qos) {
		message_error("--latency and --laptop contradict each other: give one of them");
		return -EINVAL;
	}
	if (plain && (pm_qos || s->governor || s->irq_count)) {
		message_error("--default-system changes nothing: leave it out, or --latency, "
			      "--governor and --irq");
		return -EINVAL;
	}
	if (s->duration_ns && s->duration_ns <= s->interval_ns) {
		message_error(
			"-D: %g s are over before the first wake-up; give more than the %g s of -i",
			(double)s->duration_ns / 1e9, (double)s->interval_ns / 1e9);
		return -EINVAL;
	}
	if (s->user_only && s->every_task) {
		message_error("--every-task is measured by BPF: leave out --user-only");
		return -EINVAL;
	}
	if (s->gpu && s->threads != 1) {
		message_error("--gpu launches from one thread: leave out -t and -S");
		return -EINVAL;
	}
	if (s->report_ns && s->json && !strcmp(s->json, "-")) {
		message_error("--each prints to standard output too: use --json=FILE with it");
		return -EINVAL;
	}
	return 0;
}

int settings_read(struct settings *s, int argc, char **argv)
{
	bool cpus_given = false, distance_given = false;
	bool laptop = false, pm_qos = false, plain = false, smp = false;
	bool threads_given = false;
	const char *word;
	uint64_t us;
	int letter;
	long value;

	memset(s, 0, sizeof(*s));
	s->policy = -1;
	s->interval_ns = 1000000;
	s->distance_ns = 500000;
	s->threads = 1;
	while ((letter = getopt_long(argc, argv, "a::b:d:D:fh:i:l:mnp:qSt::", options, NULL)) !=
	       -1) {
		switch (letter) {
		case OPTION_HELP:
			fputs(help, stdout);
			return EXIT_OK;
		case 'a':
			s->bound = true;
			word = optional(argc, argv);
			if (word && value_cpus("-a", word, &s->cpus))
				return wrong();
			cpus_given |= word != NULL;
			break;
		case 'b':
			if (read_us("-b", optarg, 1, 3599999999, &s->break_ns))
				return wrong();
			break;
		case 'd':
			if (read_us("-d", optarg, 0, 1000000000, &s->distance_ns))
				return wrong();
			distance_given = true;
			break;
		case 'D':
			if (read_duration("-D", optarg, &s->duration_ns))
				return wrong();
			break;
		case 'h':
			if (value_number("-h", optarg, 1, HISTOGRAM_MOST, &value))
				return wrong();
			s->bins = (uint32_t)value;
			s->show_histogram = true;
			break;
		case 'i':
			if (read_us("-i", optarg, 20, 3600000000, &s->interval_ns))
				return wrong();
			break;
		case 'l':
			if (value_number("-l", optarg, 0, 4000000000000, &value))
				return wrong();
			s->loops = (uint64_t)value;
			break;
		case 'm':
			s->lock_memory = true;
			break;
		case 'f':
		case 'n':
			break;
		case 'p':
			if (value_number("-p", optarg, 0, 99, &s->priority))
				return wrong();
			break;
		case 'q':
			s->quiet = true;
			break;
		case 'S':
			s->bound = true;
			smp = true;
			if (!threads_given)
				s->threads = 0;
			break;
		case 't':
			word = optional(argc, argv);
			threads_given = true;
			s->threads = 0;
			if (word && value_number("-t", word, 1, 4096, &s->threads))
				return wrong();
			break;
		case OPTION_JSON:
			s->json = optarg ? optarg : "-";
			break;
		case OPTION_POLICY:
			if (read_policy(optarg, &s->policy))
				return wrong();
			break;
		case OPTION_PM_QOS:
			if (read_us("--latency", optarg, 0, 1000000000, &us))
				return wrong();
			s->pm_qos_us = (long)(us / 1000);
			pm_qos = true;
			break;
		case OPTION_LAPTOP:
			laptop = true;
			break;
		case OPTION_DEFAULT:
			plain = true;
			break;
		case OPTION_GOVERNOR:
			s->governor = optarg;
			break;
		case OPTION_IRQ:
			if (read_irq(s, optarg))
				return wrong();
			break;
		case OPTION_USER_ONLY:
			s->user_only = true;
			break;
		case OPTION_EVERY_TASK:
			s->every_task = true;
			break;
		case OPTION_GPU:
			s->gpu = true;
			s->gpu_by = optarg;
			if (!optarg || !strcmp(optarg, "cuda") || !strcmp(optarg, "opencl"))
				break;
			message_error("--gpu: '%s' is not accepted; accepted: cuda, opencl",
				      optarg);
			return wrong();
		case OPTION_EACH:
			if (read_duration("--each", optarg, &s->report_ns))
				return wrong();
			break;
		default:
			return wrong();
		}
	}
	if (optind < argc) {
		message_error("'%s': no argument is accepted", argv[optind]);
		return wrong();
	}
	if (contradiction(s, laptop, pm_qos, plain, smp) || check_cpus(s, cpus_given))
		return wrong();
	if (!s->threads)
		s->threads = CPU_COUNT(&s->cpus);
	if (!s->bins) /* a launch may wait for other programs' kernels, of milliseconds each */
		s->bins = s->gpu ? 10000 : 1000;
	if (s->bound && !distance_given)
		s->distance_ns = 0;
	if (laptop || plain)
		s->pm_qos_us = -1;
	return -1;
}
