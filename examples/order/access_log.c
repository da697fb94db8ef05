// SPDX-License-Identifier: MIT
/*
 * access_log.c - a bug of the kind of Apache's 25520: two threads append lines to one buffer, and
 * nothing keeps them apart between copying a line and moving the end. A lost update, after the
 * study of Lu, Park, Seo and Zhou (2008). Exits with 1 when a line is lost or torn.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LINES 20

static char buffer[4096];
static size_t end;

static void append(const char *line)
{
	size_t length = strlen(line);

	memcpy(buffer + end, line, length);
	end += length;
}

static void *serve(void *line)
{
	for (int i = 0; i < LINES; i++)
		append(line);
	return NULL;
}

int main(void)
{
	static char first[] = "GET /index.html 200\n", second[] = "GET /logo.png 404\n";
	pthread_t threads[2];
	int lines = 0;

	pthread_create(&threads[0], NULL, serve, first);
	pthread_create(&threads[1], NULL, serve, second);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	for (char *line = buffer; line < buffer + end; line = strchr(line, '\n') + 1) {
		if (strncmp(line, first, strlen(first)) && strncmp(line, second, strlen(second)))
			break;
		lines++;
	}
	printf("%d of %d lines\n", lines, 2 * LINES);
	return lines == 2 * LINES ? 0 : 1;
}
