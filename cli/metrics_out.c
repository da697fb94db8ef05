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

	va_start(list, format);
	n = vsnprintf(NULL, 0, format, list);
	va_end(list);
	/* One byte more, for the end that printf writes. */
	if (n < 0 || !make_room(out, (size_t)n + 1))
		return;
	va_start(list, format);
	vsnprintf(out->text + out->size, (size_t)n + 1, format, list);
	va_end(list);
	out->size += (size_t)n;
}
