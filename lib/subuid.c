// SPDX-License-Identifier: MIT
/*
 * subuid.c - whose the subordinate user ids are. A user to whom /etc/subuid gives a range may be
 * each of its ids, in a user namespace. So what each user id may have, such a user could have 65536
 * times: all ids of one owner count as one.
 *
 * The user namespace of a process tells who made it. But a program whose set-user-ID bit was set
 * in there by such an id runs as it outside, and what newuidmap(1) permits is this file. So the
 * namespace is asked for ids that the file does not give to anyone: a service such as
 * systemd-nsresourced lends ids by itself, and sees to it that no file of theirs stays.
 *
 * May not: look up a name, for a directory may take long; believe a file that is not root's.
 */
#include <fcntl.h>
#include <linux/nsfs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "subuid.h"

#define FILE_NAME "/etc/subuid"
#define FILE_MAX  (4u << 20)
#define BLOCK	  65536u /* ids of a container */
#define DEEPEST	  33u	 /* user namespaces in one another, in all kernels */

#ifndef PIDFD_GET_USER_NAMESPACE
#define PIDFD_GET_USER_NAMESPACE _IO(0xFF, 9)
#endif

struct range {
	uint32_t start, count, account; /* account 0: each block counts by itself */
	char owner[RTX_LIB_SUBUID_OWNER];
};

static pthread_mutex_t subuid_lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *subuid_ranges;
static size_t subuid_count;
static struct stat subuid_read; /* the file as it was read */
static unsigned int subuid_reading;

static bool is_root(const char *owner)
{
	return !strcmp(owner, "root") || !strcmp(owner, "0");
}

/* "name:first:count". False: it is no such line. */
static bool parse(const char *line, struct range *r)
{
	unsigned long long start, count;
	int end = 0;

	*r = (struct range){ 0 };
	if (sscanf(line, "%32[^:\n]:%10llu:%10llu%n", r->owner, &start, &count, &end) != 3 ||
	    (line[end] && line[end] != '\n'))
		return false;
	if (!start || !count || start >= UINT32_MAX || count > UINT32_MAX - start)
		return false;
	r->start = (uint32_t)start;
	r->count = (uint32_t)count;
	return true;
}

/* With the lock. */
static void add(const struct range *r)
{
	struct range *more;

	/* Room grows by doubling. */
	if (!(subuid_count & (subuid_count - 1))) {
		size_t room = subuid_count ? 2 * subuid_count : 1;

		more = realloc(subuid_ranges, room * sizeof(*more));
		if (!more)
			return;
		subuid_ranges = more;
	}
	subuid_ranges[subuid_count] = *r;
	if (!is_root(r->owner)) {
		subuid_ranges[subuid_count].account = r->start;
		for (size_t i = 0; i < subuid_count; i++)
			if (!strcmp(subuid_ranges[i].owner, r->owner)) {
				subuid_ranges[subuid_count].account = subuid_ranges[i].account;
				break;
			}
	}
	subuid_count++;
}

/* With the lock. */
static void read_again(void)
{
	char line[128];
	struct range r;
	FILE *file;

	subuid_count = 0;
	subuid_reading++;
	file = fopen(FILE_NAME, "re");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		bool whole = strchr(line, '\n') || feof(file);

		if (whole && parse(line, &r))
			add(&r);
		while (!whole && fgets(line, sizeof(line), file))
			whole = strchr(line, '\n') != NULL;
	}
	fclose(file);
}

/* With the lock. */
static void look(void)
{
	struct stat st;

	if (stat(FILE_NAME, &st) || !S_ISREG(st.st_mode) || st.st_uid || st.st_mode & 022 ||
	    st.st_size > FILE_MAX) {
		subuid_reading += !subuid_reading || subuid_count;
		subuid_count = 0;
		subuid_read = (struct stat){ 0 };
		return;
	}
	if (st.st_ino == subuid_read.st_ino && st.st_dev == subuid_read.st_dev &&
	    st.st_size == subuid_read.st_size && st.st_mtim.tv_sec == subuid_read.st_mtim.tv_sec &&
	    st.st_mtim.tv_nsec == subuid_read.st_mtim.tv_nsec)
		return;
	read_again();
	subuid_read = st;
}

uid_t rtx_lib_subuid_account(uid_t uid, char owner[RTX_LIB_SUBUID_OWNER])
{
	uid_t account = uid;

	if (owner)
		owner[0] = 0;
	if (!uid)
		return uid;
	pthread_mutex_lock(&subuid_lock);
	look();
	for (size_t i = 0; i < subuid_count; i++) {
		const struct range *r = &subuid_ranges[i];

		if (uid < r->start || uid - r->start >= r->count)
			continue;
		account = r->account ? r->account : r->start + (uid - r->start) / BLOCK * BLOCK;
		if (owner)
			strcpy(owner, r->owner);
		break;
	}
	pthread_mutex_unlock(&subuid_lock);
	return account;
}

unsigned int rtx_lib_subuid_reading(void)
{
	unsigned int reading;

	pthread_mutex_lock(&subuid_lock);
	look();
	reading = subuid_reading;
	pthread_mutex_unlock(&subuid_lock);
	return reading;
}

void rtx_lib_subuid_each(rtx_lib_subuid_range range, void *ctx)
{
	pthread_mutex_lock(&subuid_lock);
	/* Where two are of one id the first one counts: the last is told first. */
	for (size_t i = subuid_count; i-- > 0;)
		range(ctx, subuid_ranges[i].start, subuid_ranges[i].count,
		      subuid_ranges[i].account);
	pthread_mutex_unlock(&subuid_lock);
}

/* --- who made the namespace ------------------------------------------------------------------- */

static pthread_once_t subuid_once = PTHREAD_ONCE_INIT;
static struct stat subuid_own; /* this process's; no inode: it is not known */

/* Each look walks through /proc. A process with threads cannot go into another namespace. */
static void look_at_own(void)
{
	if (stat("/proc/self/ns/user", &subuid_own))
		subuid_own = (struct stat){ 0 };
}

uid_t rtx_lib_subuid_maker(int pidfd, uid_t uid)
{
	struct stat st;
	uid_t maker = uid;
	int fd, parent;

	pthread_once(&subuid_once, look_at_own);
	if (!uid || pidfd < 0 || !subuid_own.st_ino)
		return uid;
	/* Not by /proc: that waits for a lock which a process that executes a program keeps. */
	fd = ioctl(pidfd, PIDFD_GET_USER_NAMESPACE, 0ul);
	if (fd < 0)
		return uid;
	/* Of those in one another, the outermost is of a user of ours. */
	for (unsigned int depth = 0; depth < DEEPEST; depth++) {
		if (fstat(fd, &st) ||
		    (st.st_ino == subuid_own.st_ino && st.st_dev == subuid_own.st_dev))
			break;
		/* None is told that is not below ours: then the number is all that is known. */
		if (ioctl(fd, NS_GET_OWNER_UID, &maker))
			maker = uid;
		parent = ioctl(fd, NS_GET_PARENT);
		if (parent < 0)
			maker = uid;
		close(fd);
		fd = parent;
		if (fd < 0)
			return uid;
	}
	close(fd);
	/* Containers of root's are not root. */
	return maker && maker != (uid_t)-1 ? maker : uid;
}
