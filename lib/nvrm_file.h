/* SPDX-License-Identifier: MIT */
/*
 * nvrm_file.h - which descriptors are librtxg's own still. A child of _Fork() may have closed what
 * it has from its parent, and opened files of its own under the same numbers: the same device, too.
 * Not installed.
 */
#ifndef RTX_LIB_NVRM_FILE_H
#define RTX_LIB_NVRM_FILE_H

#include <fcntl.h>
#include <stdbool.h>

/*
 * Of an open file, whichever descriptors it has in whichever processes; without O_ASYNC it means
 * nothing. The C library keeps this signal for itself, so that no program asks for it.
 */
#define NVRM_FILE_SIGNAL 32

static inline void nvrm_file_mark(int fd)
{
	fcntl(fd, F_SETSIG, NVRM_FILE_SIGNAL);
}

static inline bool nvrm_file_is_ours(int fd)
{
	return fd >= 0 && fcntl(fd, F_GETSIG) == NVRM_FILE_SIGNAL;
}

#endif
