/* SPDX-License-Identifier: MIT */
/*
 * screen.h - a terminal that is redrawn in place, or lines one after the other where the output is
 * no terminal.
 */
#ifndef RTXG_SCREEN_H
#define RTXG_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct screen {
	bool live; /* redrawn in place */
	bool colour;
	bool utf8;
	bool keys; /* the terminal gives keys one by one */
	int width, height, column, row;
	size_t skip;	/* lines that are left out next */
	size_t skipped; /* lines that were */
	size_t lost;	/* lines below the edge */
	FILE *out;
	char *text;
	size_t length;
};

/* Keys that are no character. */
enum { SCREEN_UP = 256, SCREEN_DOWN, SCREEN_PAGE_UP, SCREEN_PAGE_DOWN, SCREEN_HOME, SCREEN_END };

#define STYLE_BOLD    "\033[1m"
#define STYLE_DIM     "\033[2m"
#define STYLE_RED     "\033[31m"
#define STYLE_GREEN   "\033[32m"
#define STYLE_YELLOW  "\033[33m"
#define STYLE_REVERSE "\033[7m"
#define STYLE_NONE    "\033[0m"

void screen_open(struct screen *screen, bool batch);
/* keep: leaves the last picture on the terminal */
void screen_close(struct screen *screen, bool keep);
void screen_begin(struct screen *screen);
void screen_style(struct screen *screen, const char *sequence); /* nothing without colour */
void screen_put(struct screen *screen, const char *text);
void screen_print(struct screen *screen, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void screen_line(struct screen *screen);	       /* ends the line */
void screen_skip(struct screen *screen, size_t lines); /* what comes next goes up so far */
size_t screen_most(const struct screen *screen);       /* the farthest that goes up usefully */
int screen_end(struct screen *screen);		       /* shows what was composed */
/* 0 after the delay, a key as above or a character, or -EINTR when the user wants to end it. */
int screen_wait(struct screen *screen, unsigned long delay_ms);

#endif
