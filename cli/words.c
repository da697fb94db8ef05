// SPDX-License-Identifier: MIT
/*
 * words.c - lists of accepted words: the one that was meant, and all of them in a line.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "words.h"

/* Number of letters to insert, delete or replace; words are short, so one row on the stack does. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t row[64], width = strlen(b);

	if (width >= sizeof(row) / sizeof(row[0]))
		return SIZE_MAX;
	for (size_t j = 0; j <= width; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= width; j++) {
			size_t up = row[j], best = corner + (a[i - 1] != b[j - 1]);

			best = up + 1 < best ? up + 1 : best;
			best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
			row[j] = best;
			corner = up;
		}
	}
	return row[width];
}

const char *words_nearest(const char *typed, const char *const *words)
{
	const char *best = NULL;
	size_t distance = 3; /* two slips are a typo, three another word */

	for (; *words; words++) {
		size_t d = edit_distance(typed, *words);

		if (d < distance && d < strlen(*words)) {
			distance = d;
			best = *words;
		}
	}
	return best;
}

char *words_join(const char *const *words)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (size_t i = 0; words[i]; i++)
		fprintf(out, "%s%s", i ? ", " : "", words[i]);
	return fclose(out) == 0 ? text : NULL;
}
