/* SPDX-License-Identifier: MIT */
/*
 * program.h - programs of ours are started by a process that has no descriptors of users': see
 * program.c.
 */
#ifndef RTXGD_PROGRAM_H
#define RTXGD_PROGRAM_H

#include <stdbool.h>
#include <sys/types.h>

#define PROGRAM_STARTER "--start-programs"
#define PROGRAM_FILES	3u
#define PROGRAM_WORDS	8u

struct program {
	const char *path;			/* without a slash: in PATH */
	const char *words[PROGRAM_WORDS];	/* its arguments, up to a NULL */
	const char *environment[PROGRAM_WORDS]; /* the same; none: that of the daemon */
	struct {
		int fd; /* of the daemon's; -1: /dev/null */
		int as; /* in the program; at most 3 + its place here */
	} files[PROGRAM_FILES];
	unsigned int count; /* of files; the program has no others but the standard ones */
	bool group;	    /* a process group of its own */
	bool deaf;	    /* it begins with all signals blocked */
};

/*
 * Starts the process that starts programs: while no client has sent a descriptor yet, for it is
 * given a copy of all that are open. 0, or an errno.
 */
int program_start_starter(void);
/*
 * Starts a program. Its pidfd, which the caller closes, or a negative errno. *pid (may be NULL) is
 * its number.
 */
int program_start(const struct program *program, pid_t *pid);
/* Has it ended? */
bool program_ended(int pidfd);

/* main() of the process. Returns its exit status. */
int program_starter(void);

#endif
