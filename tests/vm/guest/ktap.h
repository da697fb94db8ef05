/* SPDX-License-Identifier: MIT */
/*
 * ktap.h - one program's part of a KTAP report, indented as a subtest.
 *
 * A case is a function that returns nothing and reports its findings through check(). A check that
 * fails marks the case and ends nothing, so that one run shows every fault. skip() needs a reason.
 * A program is a list of cases and RUN(). A case that is marked slow runs with tests/vm/run --slow.
 */
#ifndef RTXG_VM_KTAP_H
#define RTXG_VM_KTAP_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ktap_case {
	const char *name;
	void (*run)(void);
	bool slow;
};

/* Whether the host has put this word on the kernel's command line. */
static inline bool host_said(const char *word)
{
	char line[2048] = "";
	FILE *file = fopen("/proc/cmdline", "r");
	bool said = file && fgets(line, sizeof(line), file) && strstr(line, word);

	if (file)
		fclose(file);
	return said;
}

/* How often to repeat what one run shows and many make likelier: the short tier, the slow one. */
static inline int repeats(int quick, int slow)
{
	static int known = -1;

	if (known < 0)
		known = host_said("rtxg.slow=1");
	return known ? slow : quick;
}

static bool ktap_failed;
static const char *ktap_skip_reason;
static unsigned int ktap_checks;

static inline bool ktap_check(bool good, const char *file, int line, const char *format, ...)
{
	ktap_checks++;
	if (!good) {
		va_list args;

		ktap_failed = true;
		printf("    # %s:%d: ", file, line);
		va_start(args, format);
		vprintf(format, args);
		va_end(args);
		printf("\n");
	}
	return good;
}

/*
 * check(condition, format, ...): prints the expected and the actual result when the condition does
 * not hold.
 */
#define check(condition, ...) ktap_check((condition), __FILE_NAME__, __LINE__, __VA_ARGS__)
#define skip(reason)                         \
	do {                                 \
		ktap_skip_reason = (reason); \
		return;                      \
	} while (0)
/* A number for the JSON result. */
#define value(name, number, unit) \
	printf("    # value %s %.6g %s\n", (name), (double)(number), (unit))
#define note(...)                    \
	do {                         \
		printf("    # ");    \
		printf(__VA_ARGS__); \
		printf("\n");        \
	} while (0)

static inline int ktap_run(const struct ktap_case *cases, size_t all)
{
	size_t failed = 0, count = 0, number = 0;

	for (size_t i = 0; i < all; i++)
		count += !cases[i].slow || repeats(0, 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("    KTAP version 1\n    1..%zu%s\n", count, count ? "" : " # slow");
	for (size_t i = 0; i < all; i++) {
		if (cases[i].slow && !repeats(0, 1))
			continue;
		number++;
		ktap_failed = false;
		ktap_skip_reason = NULL;
		ktap_checks = 0;
		cases[i].run();
		if (ktap_skip_reason) {
			printf("    ok %zu %s # SKIP %s\n", number, cases[i].name,
			       ktap_skip_reason);
			continue;
		}
		if (!ktap_checks) {
			printf("    # the case checked nothing\n");
			ktap_failed = true;
		}
		failed += ktap_failed;
		printf("    %s %zu %s\n", ktap_failed ? "not ok" : "ok", number, cases[i].name);
	}
	return failed ? 1 : 0;
}

#define RUN(cases) ktap_run(cases, sizeof(cases) / sizeof((cases)[0]))

#endif
