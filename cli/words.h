/* SPDX-License-Identifier: MIT */
/*
 * words.h - lists of accepted words.
 */
#ifndef RTXG_CLI_WORDS_H
#define RTXG_CLI_WORDS_H

/* The entry in words (null-terminated) that resembles what was typed, or NULL. */
const char *words_nearest(const char *typed, const char *const *words);
/* The words (null-terminated) with commas between, to be freed; NULL without memory. */
char *words_join(const char *const *words);

#endif
