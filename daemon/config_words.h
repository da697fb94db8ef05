/* SPDX-License-Identifier: MIT */
/* config_words.h - a line of the configuration that is a list of names: see config_words.c. */
#ifndef RTXGD_CONFIG_WORDS_H
#define RTXGD_CONFIG_WORDS_H

#include <stdint.h>

#define CONFIG_WORDS 8u
#define CONFIG_WORD  31u

struct config_words {
	char word[CONFIG_WORDS][CONFIG_WORD + 1];
	uint32_t count;
};

/*
 * The words of a line, which replace what was there; an empty line names none. NULL, or where the
 * first word begins that is too long or too many: those before it are in.
 */
const char *config_words_read(struct config_words *words, const char *line);

#endif
