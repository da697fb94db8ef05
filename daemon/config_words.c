// SPDX-License-Identifier: MIT
/*
 * config_words.c - lists of names in the configuration. May not: know what they name.
 */
#include <string.h>

#include "config_words.h"

const char *config_words_read(struct config_words *words, const char *line)
{
	memset(words, 0, sizeof(*words));
	while (*(line += strspn(line, " \t"))) {
		size_t length = strcspn(line, " \t");

		if (length > CONFIG_WORD || words->count == CONFIG_WORDS)
			return line;
		memcpy(words->word[words->count++], line, length);
		line += length;
	}
	return NULL;
}
