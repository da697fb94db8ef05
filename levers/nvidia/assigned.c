// SPDX-License-Identifier: MIT
/*
 * assigned.c - see assigned.h. It reads /proc and one file, and acts on no process.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "assigned.h"
#include "patience.h"
#include "rtxg_clock.h"

#define HEAD	"rtxg-assigned 1 "
#define DEPTH	64 /* of forebears that are looked at */
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

#define LOOKS 32 /* processes of one user that are asked in one go */
#define KIN   4096u
#define ROWS  32 /* of the file, between two looks at the clock */

struct look {
	uint32_t pid, parent;
	int error;
	unsigned long long start;
};

struct looks {
	uint32_t count;
	struct look one[LOOKS];
};

/* What was read of a process in a pass. */
struct nv_kin {
	uint32_t pid, parent;
	uint64_t pass; /* in which */
	bool has_parent, has_start;
	int error; /* of its birth */
	uint64_t start;
};

static void read_stat(void *memory)
{
	struct look *l = memory;
	char path[64], line[1024], state, *end;
	ssize_t n;
	int fd;

	l->error = -ESRCH;
	snprintf(path, sizeof(path), "/proc/%u/stat", l->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	if (n <= 0)
		return;
	line[n] = '\0';
	end = strrchr(line, ')'); /* the name before it may be any bytes */
	if (end &&
	    sscanf(end + 1,
		   " %c %u %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
		   "%*d %llu",
		   &state, &l->parent, &l->start) == 3 &&
	    state != 'Z' && state != 'X')
		l->error = 0;
}

/* It holds that up; this is told without a lock of its own. */
static int read_status(uint32_t pid, uint32_t *parent)
{
	char path[64], line[256];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%u/status", pid);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = sscanf(line, "PPid: %u", parent) == 1;
	if (f)
		fclose(f);
	return found ? 0 : -ESRCH;
}

/*
 * When it was born, 0 where that cannot be told now, and its parent; -ESRCH. A zombie counts as
 * ended.
 */
static int look(uint32_t pid, uint64_t *start, uint32_t *parent)
{
	static const struct patience_call call = { .make = read_stat };
	struct look l = { .pid = pid };
	int error = rtx_lib_patience_of((pid_t)pid, &call, &l, sizeof(l));

	*start = 0;
	if (error)
		return error == -ESRCH ? error : read_status(pid, parent);
	*start = l.start;
	*parent = l.parent;
	return l.error;
}

void nv_assigned_pass(struct nv_assigned *a, bool on)
{
	if (on && a->count && !a->kin)
		a->kin = calloc(KIN, sizeof(*a->kin));
	a->passes++;
	a->passing = on && a->kin;
}

/* What is kept of that process; NULL: nothing may be. */
static struct nv_kin *kin_of(struct nv_assigned *a, uint32_t pid)
{
	struct nv_kin *kin = a->passing ? &a->kin[pid % KIN] : NULL;

	if (kin && (kin->pid != pid || kin->pass != a->passes))
		*kin = (struct nv_kin){ .pid = pid, .pass = a->passes };
	return kin;
}

static int parent_of(struct nv_assigned *a, uint32_t pid, uint32_t *parent)
{
	struct nv_kin *kin = kin_of(a, pid);
	int error;

	if (kin && kin->has_parent) {
		*parent = kin->parent;
		return 0;
	}
	error = read_status(pid, parent);
	if (kin && !error) {
		kin->parent = *parent;
		kin->has_parent = true;
	}
	return error;
}

static int birth_of(struct nv_assigned *a, uint32_t pid, uint64_t *start)
{
	struct nv_kin *kin = kin_of(a, pid);
	uint32_t parent;
	int error;

	if (kin && kin->has_start) {
		*start = kin->start;
		return kin->error;
	}
	error = look(pid, start, &parent);
	if (kin) {
		kin->start = *start;
		kin->error = error;
		kin->has_start = true;
	}
	return error;
}

static uint64_t ticks_now(void)
{
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * hz + (uint64_t)ts.tv_nsec * hz / 1000000000u;
}

/* The place of a pid: of its entry, or where that would go. */
static uint32_t place(const struct nv_assigned *a, uint32_t pid)
{
	uint32_t low = 0, high = a->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (a->one[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct nv_assigned_one *own(const struct nv_assigned *a, uint32_t pid)
{
	uint32_t i = place(a, pid);

	return i < a->count && a->one[i].pid == pid ? &a->one[i] : NULL;
}

/* label is the entry's from now on, also on failure. */
static int put(struct nv_assigned *a, const struct nv_assigned_one *new)
{
	struct nv_assigned_one *e = own(a, new->pid);
	uint32_t i = place(a, new->pid);

	if (!e && a->count == NV_ASSIGNED_MAX) {
		free(new->label);
		return -ENOSPC;
	}
	if (!e && a->count == a->room) {
		uint32_t room = a->room ? 2 * a->room : 64;

		e = realloc(a->one, room * sizeof(*e));
		if (!e) {
			free(new->label);
			return -ENOMEM;
		}
		a->one = e;
		a->room = room;
		e = NULL;
	}
	if (e) {
		free(e->label);
	} else {
		memmove(&a->one[i + 1], &a->one[i], (a->count++ - i) * sizeof(*e));
		e = &a->one[i];
	}
	*e = *new;
	a->dirty = true;
	return 0;
}

static void drop(struct nv_assigned *a, struct nv_assigned_one *e)
{
	free(e->label);
	memmove(e, e + 1, (size_t)(&a->one[--a->count] - e) * sizeof(*e));
	a->dirty = true;
}

void nv_assigned_free(struct nv_assigned *a)
{
	for (uint32_t i = 0; i < a->count; i++)
		free(a->one[i].label);
	free(a->one);
	free(a->kin);
	nv_assigned_save_again(a);
	nv_assigned_begin(a);
	memset(a, 0, sizeof(*a));
}

int nv_assigned_put(struct nv_assigned *a, uint32_t pid, uint32_t tag, bool born)
{
	struct nv_assigned_one new = { .pid = pid, .tag = tag };
	uint32_t parent;
	int err = look(pid, &new.start, &parent);

	if (!err && !new.start)
		return -EBUSY;
	new.since = born ? new.start : ticks_now();
	return err ? err : put(a, &new);
}

int nv_assigned_born(struct nv_assigned *a, uint32_t pid, uint32_t tag, uint64_t birth_ns)
{
	uint64_t start = birth_ns / (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
	struct nv_assigned_one new = { .pid = pid, .tag = tag, .start = start, .since = start };

	/* A namespace of time would tell it otherwise: it is asked until one has said the same. */
	if (!birth_ns || !a->births_told) {
		int err = nv_assigned_put(a, pid, tag, true);
		const struct nv_assigned_one *e = err ? NULL : own(a, pid);

		a->births_told = birth_ns && e && e->start == start;
		return err;
	}
	return put(a, &new);
}

void nv_assigned_remove(struct nv_assigned *a, uint32_t pid)
{
	struct nv_assigned_one *e = own(a, pid);

	if (e)
		drop(a, e);
}

/* When the child was born that is last on the way; 0: it has ended. */
static uint64_t born(struct nv_assigned *a, const uint32_t way[DEPTH], int depth)
{
	uint64_t start;

	while (depth-- > 0) {
		if (birth_of(a, way[depth], &start))
			return 0;
		if (start)
			return start;
	}
	/* What holds the answer up goes where it belongs as if it had given it. */
	return UINT64_MAX;
}

/*
 * Who is whose parent is told by a process without waiting; births may be held up, and cost more.
 * So two births are asked for, however long the way.
 */
const struct nv_assigned_one *nv_assigned_find(struct nv_assigned *a, uint32_t pid)
{
	uint32_t way[DEPTH];
	uint64_t start;

	for (int depth = 0; a->count && pid && depth < DEPTH; depth++) {
		struct nv_assigned_one *e = own(a, pid);

		if (e && birth_of(a, pid, &start))
			return NULL;
		if (e && (!start || e->start == start))
			return born(a, way, depth) >= e->since ? e : NULL;
		if (e) /* it has ended, and its number was given to another */
			drop(a, e);
		way[depth] = pid;
		if (parent_of(a, pid, &pid))
			return NULL;
	}
	return NULL;
}

static void inherit(struct nv_assigned *a, uint32_t pid)
{
	const struct nv_assigned_one *e = nv_assigned_find(a, pid);
	struct nv_assigned_one new;

	if (!e || e->pid == pid)
		return;
	new = *e;
	new.pid = pid;
	new.label = e->label ? strdup(e->label) : NULL;
	if (birth_of(a, pid, &new.start) || !new.start || (e->label && !new.label)) {
		free(new.label);
		return;
	}
	new.since = new.start;
	put(a, &new);
}

void nv_assigned_begin(struct nv_assigned *a)
{
	a->pruned = 0;
	if (a->proc)
		closedir(a->proc);
	a->proc = NULL;
}

bool nv_assigned_inherit(struct nv_assigned *a, uint64_t until_ns)
{
	struct dirent *p = NULL;
	bool over = false;

	if (!a->proc && a->count)
		a->proc = opendir("/proc");
	nv_assigned_pass(a, true);
	while (a->proc && !over && (p = readdir(a->proc))) {
		char *end;
		unsigned long pid = strtoul(p->d_name, &end, 10);

		if (!pid || *end || pid > UINT32_MAX)
			continue;
		inherit(a, (uint32_t)pid);
		over = rtxg_now_ns() >= until_ns;
	}
	nv_assigned_pass(a, false);
	if (a->proc && !p) {
		closedir(a->proc);
		a->proc = NULL;
	}
	return !a->proc;
}

static void read_stats(void *memory)
{
	struct looks *looks = memory;

	for (uint32_t i = 0; i < looks->count; i++)
		read_stat(&looks->one[i]);
}

/* Those of one user together: to ask costs more than the answer. */
static void drop_ended(struct nv_assigned *a, uid_t user, struct looks *looks)
{
	static const struct patience_call call = { .make = read_stats };
	struct nv_assigned_one *e;

	/* Of those who hold it up nothing is known. */
	if (!looks->count || rtx_lib_patience(user, &call, looks, sizeof(*looks)))
		looks->count = 0;
	for (uint32_t i = 0; i < looks->count; i++) {
		e = own(a, looks->one[i].pid);
		if (e && (looks->one[i].error || looks->one[i].start != e->start))
			drop(a, e);
	}
	looks->count = 0;
}

bool nv_assigned_prune(struct nv_assigned *a, uint64_t until_ns)
{
	struct looks looks = { 0 };
	bool over = false;
	uid_t user = 0;

	/* Places move when entries come and go; pids do not. */
	for (uint32_t i = place(a, a->pruned); i < a->count && !over;) {
		char path[64];
		struct stat st;

		snprintf(path, sizeof(path), "/proc/%u", a->one[i].pid);
		a->pruned = a->one[i].pid + 1;
		if (stat(path, &st)) {
			drop(a, &a->one[i]);
			continue;
		}
		if (looks.count == LOOKS || (looks.count && st.st_uid != user)) {
			drop_ended(a, user, &looks);
			i = place(a, a->pruned - 1);
			over = rtxg_now_ns() >= until_ns;
		}
		user = st.st_uid;
		looks.one[looks.count++].pid = a->one[i++].pid;
	}
	drop_ended(a, user, &looks);
	if (place(a, a->pruned) < a->count)
		return false;
	a->pruned = 0;
	return true;
}

static void boot_id(char id[64])
{
	FILE *f = fopen(BOOT_ID, "re");

	if (!f || fscanf(f, "%63s", id) != 1)
		strcpy(id, "?");
	if (f)
		fclose(f);
}

static int fresh_name(const char *path, char fresh[PATH_MAX])
{
	return snprintf(fresh, PATH_MAX, "%s.new", path) >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* The file that is to replace the other one. */
static int begin_save(struct nv_assigned *a, const char *fresh)
{
	char id[64];
	int fd, err;

	unlink(fresh);
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	a->file = fdopen(fd, "w");
	if (!a->file) {
		err = -errno;
		close(fd);
		unlink(fresh);
		return err;
	}
	boot_id(id);
	fprintf(a->file, HEAD "%s\n", id);
	a->saved = 0;
	/* What changes from now on may not be in it. */
	a->dirty = false;
	return 0;
}

static int end_save(struct nv_assigned *a, const char *path, const char *fresh)
{
	int err = ferror(a->file) ? -EIO : 0;

	if (fclose(a->file) && !err)
		err = -errno;
	a->file = NULL;
	if (!err && rename(fresh, path))
		err = -errno;
	if (!err)
		return 0;
	unlink(fresh);
	a->dirty = true;
	return err;
}

int nv_assigned_save(struct nv_assigned *a, const char *path, nv_assigned_label label, void *ctx,
		     uint64_t until_ns)
{
	char fresh[PATH_MAX], text[NV_ASSIGNED_LABEL];
	int err = fresh_name(path, fresh);

	if (!err && !a->file)
		err = begin_save(a, fresh);
	if (err)
		return err;
	for (uint32_t i = place(a, a->saved), rows = 0; i < a->count; i++) {
		const struct nv_assigned_one *e = &a->one[i];

		if (rows && rows % ROWS == 0 && rtxg_now_ns() >= until_ns)
			return 1;
		rows++;
		a->saved = e->pid + 1;
		if (e->label || (e->tag != NV_ASSIGNED_NONE && label(ctx, e->tag, text)))
			fprintf(a->file, "%u %llu %llu %s\n", e->pid, (unsigned long long)e->start,
				(unsigned long long)e->since, e->label ? e->label : text);
	}
	return end_save(a, path, fresh);
}

void nv_assigned_save_again(struct nv_assigned *a)
{
	if (!a->file)
		return;
	fclose(a->file);
	a->file = NULL;
	a->dirty = true;
}

static int read_line(char *line, struct nv_assigned_one *e)
{
	unsigned long long start, since;
	unsigned int pid;
	int at = 0;
	size_t n;

	if (sscanf(line, "%u %llu %llu %n", &pid, &start, &since, &at) != 3 || !at || !pid)
		return -EINVAL;
	n = strcspn(line + at, "\n");
	if (!n || n >= NV_ASSIGNED_LABEL || line[at + n] != '\n')
		return -EINVAL;
	*e = (struct nv_assigned_one){ .pid = pid,
				       .tag = NV_ASSIGNED_NONE,
				       .start = start,
				       .since = since,
				       .label = strndup(line + at, n) };
	return e->label ? 0 : -ENOMEM;
}

int nv_assigned_load(struct nv_assigned *a, const char *path)
{
	char line[NV_ASSIGNED_LABEL + 100], head[100], id[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), err = 0;
	struct nv_assigned_one e;
	struct stat st;
	FILE *f;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	    st.st_mode & (S_IWGRP | S_IWOTH))
		err = -EPERM;
	f = err ? NULL : fdopen(fd, "r");
	if (!f) {
		close(fd);
		return err ? err : -ENOMEM;
	}
	boot_id(id);
	snprintf(head, sizeof(head), HEAD "%s\n", id);
	if (!fgets(line, sizeof(line), f) || strncmp(line, HEAD, strlen(HEAD)))
		err = -EINVAL;
	if (!err && strcmp(line, head)) /* from before the last boot: none of them is left */
		goto out;
	while (!err && fgets(line, sizeof(line), f)) {
		err = read_line(line, &e);
		if (!err)
			err = put(a, &e);
	}
	if (err)
		nv_assigned_free(a);
	nv_assigned_prune(a, UINT64_MAX);
out:
	fclose(f);
	return err;
}
