// SPDX-License-Identifier: MIT
/*
 * unruly_driver.c - a driver of OpenCL that has no device, says names all the same, and does what
 * no driver should. In a file beside it is one word of that, and there it notes as which user and
 * with which environment it runs.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char **environ;

static void note_who_runs(FILE *note)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];

	fprintf(note, "begins\n");
	while (status && fgets(line, sizeof(line), status))
		if (!strncmp(line, "Uid:", 4) || !strncmp(line, "Gid:", 4) ||
		    !strncmp(line, "CapEff:", 7) || !strncmp(line, "CapPrm:", 7) ||
		    !strncmp(line, "NoNewPrivs:", 11))
			fputs(line, note);
	for (char **one = environ; *one; one++)
		fprintf(note, "%s\n", *one);
	if (status)
		fclose(status);
}

/* No signal that can be refused ends it, and no limit on its processor time. */
static void hang(void)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (;;)
		sleep(3600);
}

static void misbehave(const char *how, const char *go)
{
	if (!strcmp(how, "slow")) {
		/* until the test has seen what it wanted to see */
		while (access(go, F_OK))
			usleep(10000);
	} else if (!strcmp(how, "crash")) {
		abort();
	} else if (!strcmp(how, "hang")) {
		hang();
	} else if (!strcmp(how, "child")) {
		/*
		 * A helper of its own that stays, in a session of its own, with all that was open.
		 */
		if (fork() == 0) {
			setsid();
			prctl(PR_SET_NAME, "unruly-driver");
			hang();
		}
	} else if (!strcmp(how, "close")) {
		for (int fd = 0; fd < 256; fd++)
			close(fd);
	}
}

__attribute__((constructor)) static void begin(void)
{
	char path[512], go[512], how[32] = "";
	FILE *note;
	Dl_info self;

	puts("phantom-of-a-driver");
	fflush(stdout);
	if (!dladdr((void *)begin, &self))
		return;
	snprintf(path, sizeof(path), "%s.note", self.dli_fname);
	snprintf(go, sizeof(go), "%s.go", self.dli_fname);
	note = fopen(path, "r+");
	if (!note)
		return;
	if (fscanf(note, "%31s", how) != 1)
		how[0] = 0;
	fseek(note, 0, SEEK_END);
	note_who_runs(note);
	fclose(note);
	misbehave(how, go);
}
