/* SPDX-License-Identifier: MIT */
/* patience.h - system calls that another user's process may hold up: see patience.c. */
#ifndef RTXG_PATIENCE_H
#define RTXG_PATIENCE_H

#include <stddef.h>
#include <sys/types.h>

struct patience_call {
	/*
	 * Runs in another thread. It may use its memory only, and what never goes away. It has no
	 * descriptors but those that it opens.
	 */
	void (*make)(void *memory);
	/* Takes back what `make` made, where that came too late. NULL: there is nothing to it. */
	void (*undo)(void *memory);
	/*
	 * A descriptor that `make` has opened, and which no user's process can hold up the end of;
	 * or a negative errno. It becomes the caller's. NULL: there is none.
	 */
	int *(*gives)(void *memory);
};

/*
 * Called while few files are open, where many will be: each thread begins with a copy of those that
 * were open then. Without it that is when the first call is made.
 */
void rtx_lib_patience_begin(void);

/*
 * Makes a call that a process of `uid` may hold up. All ids that are subordinate to one user are
 * one user here (subuid.h). `memory` is copied for the call, and back when it has been made.
 *
 *   0           it was made
 *   -EBUSY      the user holds up another call, or did so in the last 10 s; or 64 users do
 *   -ETIMEDOUT  it is held up: its thread sleeps after 50 ms, or has computed for longer than that
 *   -EAGAIN     there is no thread, no memory or no CPU for it
 */
int rtx_lib_patience(uid_t uid, const struct patience_call *call, void *memory, size_t size);

/* The same, where the user is the one whose process it is. -ESRCH: there is no such process. */
int rtx_lib_patience_of(pid_t pid, const struct patience_call *call, void *memory, size_t size);

#endif
