/* SPDX-License-Identifier: MIT */
/*
 * page_words.c - page-words PAGE: copies a manual page to stdout. The core's table of policies
 * gives the text in the place of these words:
 *
 *   @POLICIES@  on a separate line: a list of names and summaries
 *   @NAMES@     the names, with commas between
 *   @DEFAULT@   the name of the default
 *   @OVERRUN@, @PERIOD@, @WINDOW@, @BAND_WAIT@, @THINK@
 *               the names of the policies that read this parameter
 *
 * An unknown word is an error, so that a typing mistake does not reach a page.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rtxg_core.h"

static void put_list(void)
{
	for (uint32_t i = 0; i < RTXG_GPU_POLICIES; i++)
		printf(".TP\n.B %s\n%s\n", rtxg_gpu_policy_name(i), rtxg_gpu_policy_summary(i));
}

/* The policies that read any of these parameters. */
static void put_names(uint32_t parameters)
{
	const char *between = "";

	for (uint32_t i = 0; i < RTXG_GPU_POLICIES; i++) {
		if (!(rtxg_gpu_policy_reads(i) & parameters) && parameters)
			continue;
		printf("%s\\fB%s\\fR", between, rtxg_gpu_policy_name(i));
		between = ", ";
	}
}

static bool put_word(const char *word, size_t length)
{
	static const struct {
		const char *word;
		uint32_t parameters;
	} names[] = {
		{ "NAMES", 0 },
		{ "OVERRUN", RTXG_READS_OVERRUN },
		{ "PERIOD", RTXG_READS_PERIOD },
		{ "WINDOW", RTXG_READS_WINDOW },
		{ "BAND_WAIT", RTXG_READS_BAND_WAIT },
		{ "THINK", RTXG_READS_THINK },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i].word) == length && !memcmp(names[i].word, word, length)) {
			put_names(names[i].parameters);
			return true;
		}
	if (length == 7 && !memcmp(word, "DEFAULT", 7)) {
		printf("\\fB%s\\fR", rtxg_gpu_policy_name(RTXG_GPU_POLICY_DEFAULT));
		return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	FILE *page = argc == 2 ? fopen(argv[1], "r") : NULL;
	char line[1024];

	if (!page) {
		fprintf(stderr, "usage: page-words PAGE, a file that can be read\n");
		return 2;
	}
	while (fgets(line, sizeof(line), page)) {
		const char *at = line, *end;

		if (!strcmp(line, "@POLICIES@\n")) {
			put_list();
			continue;
		}
		while ((end = strchr(at, '@'))) {
			const char *word = end + 1;

			fwrite(at, 1, (size_t)(end - at), stdout);
			end = strchr(word, '@');
			if (!end || !put_word(word, (size_t)(end - word))) {
				fprintf(stderr, "page-words: %s: unknown word in: %s", argv[1],
					line);
				return 1;
			}
			at = end + 1;
		}
		fputs(at, stdout);
	}
	fclose(page);
	return ferror(stdout) ? 1 : 0;
}
