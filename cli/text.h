/* SPDX-License-Identifier: MIT */
/*
 * text.h - names that other programs chose, made fit for a terminal and for JSON.
 */
#ifndef RTXG_CLI_TEXT_H
#define RTXG_CLI_TEXT_H

/*
 * Puts a '?' for each byte that is not UTF-8 and for each character that a terminal obeys: controls
 * (C0, DEL, C1) and those that turn the direction of writing. Returns text.
 */
char *text_clean(char *text);

#endif
