/* SPDX-License-Identifier: MIT */
/*
 * own_file.h - which descriptors are librtxg's own still. A child of _Fork() may have closed what
 * it has from its parent, and opened files of its own under the same numbers: the same device, too.
 * Not installed.
 */
#ifndef RTX_LIB_OWN_FILE_H
#define RTX_LIB_OWN_FILE_H

#include <fcntl.h>
#include <stdbool.h>

/*
 * It stands in the open file, for all its descriptors in all processes; without O_ASYNC it means
 * nothing. The C library keeps this signal for itself, so that no program asks for it.
 */
#define OWN_FILE_SIGNAL 32

static inline void own_file_mark(int fd)
{
	fcntl(fd, F_SETSIG, OWN_FILE_SIGNAL);
}

static inline bool own_file_is_ours(int fd)
{
	return fd >= 0 && fcntl(fd, F_GETSIG) == OWN_FILE_SIGNAL;
}

#endif
