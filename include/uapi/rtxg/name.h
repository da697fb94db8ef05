/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * name.h - what a name of a GPU may be made of. Programs choose such names, and people see them in
 * terminals and logs, so every host refuses the same.
 *
 * May not: need a library.
 */
#ifndef RTXG_NAME_H
#define RTXG_NAME_H

/*
 * The bytes, 1 to 4, of the character at text if it is UTF-8 and does nothing to a terminal: no
 * control (C0, DEL, C1) and no mark that turns the direction of the text. Else 0. Of text at least
 * 1 and at most `left` bytes are read.
 */
static inline unsigned long rtxg_name_character(const unsigned char *text, unsigned long left)
{
	unsigned int code = *text;
	unsigned long length = code < 0x80   ? 1
			       : code < 0xc2 ? 0
			       : code < 0xe0 ? 2
			       : code < 0xf0 ? 3
			       : code < 0xf5 ? 4
					     : 0;

	if (length <= 1)
		return length && code >= 0x20 && code != 0x7f;
	if (length > left)
		return 0;
	code &= 0x7fu >> length;
	for (unsigned long i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (text[i] & 0x3f);
	}
	/* longer than need be, beyond Unicode, and halves of pairs of UTF-16 */
	if ((length == 3 && code < 0x800) || (length == 4 && code < 0x10000) || code > 0x10ffff ||
	    (code >= 0xd800 && code < 0xe000))
		return 0;
	if (code < 0xa0 || code == 0x61c || code == 0x200e || code == 0x200f ||
	    (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069))
		return 0;
	return length;
}

#endif
