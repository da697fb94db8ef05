// SPDX-License-Identifier: MIT
/*
 * text.c - names that other programs chose, made fit for a terminal and for JSON. A process chooses
 * its own name: it must neither command the terminal nor vanish from a list because of a byte.
 *
 * May not: make a text longer.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text.h"

/* Bytes of the UTF-8 character at text, which ends with a zero byte; 0 if there is none. */
static size_t character(const unsigned char *text, uint32_t *code)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t length = text[0] < 0x80		   ? 1
			: (text[0] & 0xe0) == 0xc0 ? 2
			: (text[0] & 0xf0) == 0xe0 ? 3
			: (text[0] & 0xf8) == 0xf0 ? 4
						   : 0;

	if (!length)
		return 0;
	*code = length == 1 ? text[0] : text[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (text[i] & 0x3f);
	}
	if (*code < least[length] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
		return 0;
	return length;
}

static bool obeyed(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c ||
	       (code >= 0x200e && code < 0x2010) || (code >= 0x2028 && code < 0x202f) ||
	       (code >= 0x2066 && code < 0x206a);
}

char *text_clean(char *text)
{
	char *to = text;
	const char *from = text;

	while (*from) {
		uint32_t code = 0;
		size_t length = character((const unsigned char *)from, &code);

		if (!length || obeyed(code)) {
			*to++ = '?';
			from += length ? length : 1;
			continue;
		}
		while (length--)
			*to++ = *from++;
	}
	*to = '\0';
	return text;
}
