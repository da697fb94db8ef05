// SPDX-License-Identifier: MIT
/* metrics_out.c - see metrics_out.h. May not know what the text says. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metrics_out.h"

static bool make_room(struct metrics_out *out, size_t size)
{
	size_t room = out->room ? out->room : 1 << 16;
	char *text;

	if (out->failed)
		return false;
	while (room - out->size < size)
		room *= 2;
	if (room == out->room)
		return true;
	text = realloc(out->text, room);
	if (!text) {
		out->failed = true;
		return false;
	}
	out->text = text;
	out->room = room;
	return true;
}

void metrics_out_put(struct metrics_out *out, const char *text, size_t size)
{
	if (out->room - out->size < size && !make_room(out, size))
		return;
	memcpy(out->text + out->size, text, size);
	out->size += size;
}

void metrics_out_text(struct metrics_out *out, const char *text)
{
	metrics_out_put(out, text, strlen(text));
}

void metrics_out_format(struct metrics_out *out, const char *format, ...)
{
	va_list list;
	int n;

	/* There nearly always is room; where there was not, it is written again. */
	for (size_t room = 256;; room = (size_t)n + 1) {
		if (out->room - out->size < room && !make_room(out, room))
			return;
		va_start(list, format);
		n = vsnprintf(out->text + out->size, out->room - out->size, format, list);
		va_end(list);
		if (n < 0)
			return;
		if ((size_t)n < out->room - out->size)
			break;
	}
	out->size += (size_t)n;
}
