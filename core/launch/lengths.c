/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * lengths.c - how long a lane's uses of an engine last: see lengths.h. May not know what a lane is.
 */
#include "lengths.h"

void core_lengths_note(struct core_lengths *lengths, uint64_t ns)
{
	lengths->before = lengths->last;
	lengths->last = ns;
}

/*
 * A periodic program's kernels are alike; one that is not alike the one before it says that the
 * program is doing something else, and then a guess would be wrong as often as not. After the first
 * one nothing speaks against the guess.
 */
uint64_t core_lengths_expected(const struct core_lengths *lengths, unsigned int alike)
{
	uint64_t less = lengths->last, more = lengths->before;

	if (!more)
		return less;
	if (less > more) {
		less = lengths->before;
		more = lengths->last;
	}
	return more - less <= more / alike ? less : 0;
}
