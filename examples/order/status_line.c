// SPDX-License-Identifier: MIT
/*
 * status_line.c - a bug of the kind of MySQL's 3596: one thread looks whether a statement's status
 * is set and then prints it, another one ends the statement and takes the status away in between.
 * An atomicity violation, after the study of Lu, Park, Seo and Zhou (2008). Ends by SIGSEGV when it
 * strikes.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define STATEMENTS 20
#define LOOKS	   20

static const char *volatile status; /* a compiler would read it once otherwise */
static size_t printed;

static void *show_statements(void *unused)
{
	for (int i = 0; i < LOOKS; i++)
		if (status)
			printed += strlen(status);
	return unused;
}

static void *run_statement(void *unused)
{
	for (int i = 0; i < STATEMENTS; i++) {
		status = "sorting";
		status = NULL;
	}
	return unused;
}

int main(void)
{
	pthread_t show, run;

	pthread_create(&run, NULL, run_statement, NULL);
	pthread_create(&show, NULL, show_statements, NULL);
	pthread_join(show, NULL);
	pthread_join(run, NULL);
	printf("%zu characters of status\n", printed);
	return 0;
}
