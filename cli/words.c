// SPDX-License-Identifier: MIT
/*
 * words.c - lists of accepted words: the one that was meant, and all of them in a line.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "words.h"

/*
 * Letters to insert, delete, replace or swap with their neighbour. Words are short: three rows of
 * the table on the stack suffice.
 */
static size_t edit_distance(const char *a, const char *b)
{
	enum { ROOM = 64 };
	size_t rows[3][ROOM], width = strlen(b), length = strlen(a);

	if (width >= ROOM)
		return SIZE_MAX;
	for (size_t j = 0; j <= width; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= length; i++) {
		size_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

		now[0] = i;
		for (size_t j = 1; j <= width; j++) {
			size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);

			best = last[j] + 1 < best ? last[j] + 1 : best;
			best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    before[j - 2] + 1 < best)
				best = before[j - 2] + 1;
			now[j] = best;
		}
	}
	return rows[length % 3][width];
}

const char *words_nearest(const char *typed, const char *const *words)
{
	const char *best = NULL;
	size_t distance = 3; /* two slips are a typo, three another word */

	for (; *words; words++) {
		size_t d = edit_distance(typed, *words);

		/* In a word of four letters two slips are another word already. */
		if (d < distance && d < (strlen(*words) + 1) / 2) {
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
