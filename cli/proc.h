/* SPDX-License-Identifier: MIT */
/*
 * proc.h - processes, as /proc shows them.
 */
#ifndef RTXG_CLI_PROC_H
#define RTXG_CLI_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct gpu_user {
	pid_t pid;
	uid_t uid;
	char command[17]; /* the name of its first thread */
	char line[256];	  /* its command line, as in ps */
	char uses[96];	  /* what shows that it uses a GPU: device files and libraries */
	bool unseen;	  /* it could not be looked into */
};

struct gpu_users {
	struct gpu_user *list;
	size_t count;
	size_t unseen; /* processes that could not be looked into */
};
int proc_gpu_users(struct gpu_users *users);
void proc_gpu_users_free(struct gpu_users *users);
int proc_name(pid_t pid, char *name, size_t size); /* -ESRCH if there is none */
const char *proc_user(uid_t uid);
/* Writes the directory of this program, without a final slash. */
int proc_own_directory(char *path, size_t size);

#endif
