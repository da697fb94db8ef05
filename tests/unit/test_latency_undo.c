// SPDX-License-Identifier: MIT
/*
 * test_latency_undo.c - settings are put back however a run ends. Plain files stand for those of
 * governors and interrupts, which are files to latency/undo.c too. A plain file keeps the end of a
 * longer text, so all values of one are of one length.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../latency/undo.h"

static char folder[] = "/tmp/rtxg-undo-XXXXXX";

static const char *path(const char *name)
{
	static char text[2][128];
	static int which;

	which = !which;
	snprintf(text[which], sizeof(text[which]), "%s/%s", folder, name);
	return text[which];
}

static void set(const char *name, const char *value)
{
	FILE *file = fopen(path(name), "w");

	assert_non_null(file);
	fputs(value, file);
	fclose(file);
}

static bool holds(const char *name, const char *value)
{
	char line[64];

	return undo_read_line(path(name), line, sizeof(line)) >= 0 && !strcmp(line, value);
}

/* A run: changes two settings, one of them twice, says so, and ends by this signal, or in order. */
static void run(int signal_number)
{
	int ends[2];
	char byte;
	pid_t pid;

	set("governor", "schedutil");
	set("affinity", "0-1");
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL); /* cmocka's own handler would go on with the tests */
		if (undo_write(path("governor"), "userspace") ||
		    undo_write(path("affinity"), "1-1") || undo_write(path("affinity"), "0-0"))
			_exit(1);
		if (write(ends[1], "", 1) != 1)
			_exit(2);
		if (!signal_number)
			_exit(undo_all());
		close(ends[1]);
		for (;;)
			pause();
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	if (signal_number) {
		assert_true(holds("governor", "userspace"));
		assert_true(holds("affinity", "0-0"));
		kill(pid, signal_number);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	/* the process that puts back is another one: it may need a moment */
	for (int i = 0; i < 6000 && !(holds("governor", "schedutil") && holds("affinity", "0-1"));
	     i++) {
		struct timespec t = { .tv_nsec = 10000000 };

		nanosleep(&t, NULL);
	}
	assert_true(holds("governor", "schedutil"));
	assert_true(holds("affinity", "0-1"));
	close(ends[0]);
}

static void settings_are_as_before_when_a_run_ends(void **state)
{
	run(0);
}

static void settings_are_as_before_when_a_run_is_killed(void **state)
{
	run(SIGKILL);
}

static void settings_are_as_before_when_a_run_crashes(void **state)
{
	run(SIGSEGV);
}

static void what_cannot_be_read_is_not_changed(void **state)
{
	assert_true(undo_write(path("missing"), "1") < 0);
	assert_int_not_equal(access(path("missing"), F_OK), 0);
}

/*
 * It is read and opened, and takes no value: nothing was changed, and nothing is left to be said.
 */
static void what_refused_a_change_is_as_before(void **state)
{
	assert_true(undo_write("/proc/version", "1") < 0);
	assert_int_equal(undo_all(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_are_as_before_when_a_run_ends),
		cmocka_unit_test(settings_are_as_before_when_a_run_is_killed),
		cmocka_unit_test(settings_are_as_before_when_a_run_crashes),
		cmocka_unit_test(what_cannot_be_read_is_not_changed),
		cmocka_unit_test(what_refused_a_change_is_as_before),
	};
	int failed;

	if (!mkdtemp(folder))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path("governor"));
	unlink(path("affinity"));
	rmdir(folder);
	return failed;
}
