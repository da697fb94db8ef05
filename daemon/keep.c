// SPDX-License-Identifier: MIT
/*
 * keep.c - what was made at run time, in a file beside the socket (SOCKET.state), for the next
 * daemon there: vGPUs, pools, parameters of GPUs, and where tasks were put by others than
 * themselves. The file is replaced in one step and before a request is answered, so a daemon that
 * is killed at any moment leaves one that is whole. It has a line for each object, as a request of
 * the protocol, and message.c reads it as it reads a client.
 *
 * A drop-in of the configuration lasts beyond a reboot; this file does not.
 *
 * May not: keep the daemon from starting; believe a file that another user could have written.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "binding.h"
#include "breathe.h"
#include "host.h"
#include "keep.h"
#include "objects.h"
#include "params.h"
#include "process.h"
#include "report.h"
#include "user.h"

#define FORMAT	      1
#define FILE_MAX_SIZE (4u << 20)
#define BOOT_ID	      "/proc/sys/kernel/random/boot_id"
/*
 * Programs look for a new daemon four times a second. What no task comes back for by then goes, but
 * a task whose process lives may come later: it may have had no processor, or be stopped.
 */
#define AWAIT_US 10000000ull
/* A process that did not say when it began, which is as late as its user likes, is asked again. */
#define AGAIN_US 1000000ull

/* A task that has not come back yet. */
struct kept_task {
	pid_t pid;
	uid_t uid;
	uid_t user;		  /* under which it counts: user_key() */
	unsigned long long began; /* 0: not known */
	uint64_t page_inode;
	char vgpu[RTXG_NAME_MAX + 1];
	struct rtxg_task_params params;
};

static struct {
	char path[128];
	char *saved;	/* what the file has; NULL: nothing that we wrote */
	int error;	/* errno: the file does not have what there is now */
	char lost[400]; /* what the file before had and is not there; "" */
	struct kept_task *tasks;
	uint32_t tasks_count;
	bool awaiting; /* tasks of the daemon before may still come */
	bool unknown;  /* when the process of a task that was put somewhere began */
	sd_event_source *again;
} keep;

/* --- writing ---------------------------------------------------------------------------------- */

static void boot_id(char id[40])
{
	FILE *f = fopen(BOOT_ID, "re");

	id[0] = 0;
	if (f && fgets(id, 40, f))
		id[strcspn(id, "\n")] = 0;
	if (f)
		fclose(f);
}

static void put_line(FILE *out, json_t *object, unsigned int *lines)
{
	if (object && !json_dumpf(object, out, JSON_COMPACT)) {
		fputc('\n', out);
		(*lines)++;
	}
	json_decref(object);
}

static json_t *gpu_line(const char *op, const char *name, const struct rtxg_gpu_params *params)
{
	json_t *o = report_gpu_params(params);

	report_put_text(o, "op", op);
	if (name)
		report_put_text(o, "gpu", name);
	return o;
}

/* NULL: it comes from the configuration, or goes with a process that has ended. */
static json_t *vgpu_line(const struct vgpu *vgpu)
{
	bool made = vgpu->origin == ORIGIN_RUNTIME || vgpu->origin == ORIGIN_TRANSIENT;
	json_t *o;

	if (!made && !vgpu->changed)
		return NULL;
	o = json_object();
	report_put_text(o, "op", made ? "vgpu" : "vgpu-changed");
	report_put_vgpu_params(o, vgpu);
	if (!vgpu->params.weight)
		json_object_set_new(o, "weight", json_null());
	if (!vgpu->latency_ns)
		json_object_set_new(o, "latency_ns", json_null());
	if (!vgpu->quantum_ns)
		json_object_set_new(o, "quantum_ns", json_null());
	if (!vgpu->memory_bytes)
		json_object_set_new(o, "memory_bytes", json_null());
	report_put(o, "task_priority", vgpu->task_priority);
	if (vgpu->gpu[0])
		report_put_text(o, "gpu", vgpu->gpu);
	if (vgpu->origin == ORIGIN_TRANSIENT) {
		report_put_bool(o, "transient", true);
		if (vgpu->creator >= 0 && vgpu->creator_began) {
			report_put(o, "pid", (uint64_t)vgpu->creator_pid);
			report_put(o, "began", vgpu->creator_began);
		}
	}
	return o;
}

static json_t *cgroup_line(const struct binding *b)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:b}", "op", "cgroup", "vgpu", b->vgpu->name,
			 "cgroup", b->cgroup, "uid", (json_int_t)b->uid, "transient", b->transient);
}

static json_t *pool_line(const struct daemon *d, const struct pool *pool)
{
	json_t *gpus = json_array();

	for (uint32_t g = 0; g < GPUS_MAX; g++)
		if (pool->mask >> g & 1)
			json_array_append_new(gpus, json_string(d->gpus[g].name));
	return json_pack("{s:s, s:s, s:o}", "op", "pool", "pool", pool->name, "gpus", gpus);
}

static json_t *task_line(const struct kept_task *k)
{
	json_t *o = json_pack("{s:s, s:s}", "op", "task", "vgpu", k->vgpu);

	report_put(o, "pid", (uint64_t)k->pid);
	report_put(o, "uid", k->uid);
	if (k->began)
		report_put(o, "began", k->began);
	report_put(o, "page", k->page_inode);
	if (k->params.priority)
		report_put(o, "priority", k->params.priority);
	report_put(o, "runtime_ns", k->params.runtime_ns);
	report_put(o, "deadline_ns", k->params.deadline_ns);
	report_put(o, "period_ns", k->params.period_ns);
	return o;
}

/* The birth of the process that was asked for it last: one with a thousand tasks is asked once. */
struct birth {
	pid_t pid;
	unsigned long long began;
	int error;
};

static unsigned long long born(pid_t pid, struct birth *last)
{
	if (last->pid != pid) {
		errno = 0;
		last->pid = pid;
		last->began = process_began(pid, pid);
		last->error = errno;
	}
	errno = last->error;
	return last->began;
}

/* False: its process has ended. */
static bool kept(struct task *task, struct kept_task *k, struct birth *last)
{
	const struct vgpu *vgpu = task->moving_to ? task->moving_to : task->vgpu;

	*k = (struct kept_task){ .pid = task->pid,
				 .uid = task->uid,
				 .page_inode = task->page_inode };
	errno = 0;
	if (!task->began)
		task->began = born(task->pid, last);
	if (!task->began && errno != ESRCH)
		keep.unknown = true;
	k->began = task->began;
	k->params = task->permit.params;
	strcpy(k->vgpu, vgpu->name);
	return (k->began || errno != ESRCH) && k->page_inode;
}

static void put_tasks(struct daemon *d, FILE *out, unsigned int *lines)
{
	struct birth last = { 0 };
	struct kept_task k;

	for (uint32_t i = 0; i < d->tasks_top; i++) {
		if (d->tasks[i].used && d->tasks[i].placed && kept(&d->tasks[i], &k, &last))
			put_line(out, task_line(&k), lines);
		breathe(d);
	}
	for (uint32_t i = 0; i < keep.tasks_count; i++) {
		put_line(out, task_line(&keep.tasks[i]), lines);
		breathe(d);
	}
}

/* All objects, a line each; NULL: no memory. */
static char *objects_text(struct daemon *d, unsigned int *lines)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	const struct vgpu *vgpu;

	if (!out)
		return NULL;
	*lines = 0;
	keep.unknown = false;
	if (d->gpu_default_changed)
		put_line(out, gpu_line("gpu-default", NULL, &d->gpu_default), lines);
	for (uint32_t i = 0; i < GPUS_MAX; i++)
		if (d->gpus[i].used && d->gpus[i].changed)
			put_line(out, gpu_line("gpu", d->gpus[i].name, &d->gpus[i].params), lines);
	for (uint64_t order = 0; (vgpu = report_next_vgpu(d, order)); order = vgpu->created)
		put_line(out, vgpu_line(vgpu), lines);
	for (uint32_t i = 0; i < d->bindings_count; i++)
		if (!d->bindings[i].configured)
			put_line(out, cgroup_line(&d->bindings[i]), lines);
	for (uint32_t i = 0; i < POOLS_MAX; i++)
		if (d->pools[i].used && d->pools[i].made)
			put_line(out, pool_line(d, &d->pools[i]), lines);
	put_tasks(d, out, lines);
	return fclose(out) ? (free(text), NULL) : text;
}

static int write_all(int fd, const char *text, size_t size)
{
	while (size) {
		ssize_t n = write(fd, text, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? errno : ENOSPC;
		text += n;
		size -= (size_t)n;
	}
	return 0;
}

/* 0 or an errno. Nobody sees half of it: not the next daemon, not after a full disk. */
static int replace(const char *head, const char *text)
{
	char path[sizeof(keep.path) + 8];
	int fd, error;

	snprintf(path, sizeof(path), "%s.new", keep.path);
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno;
	error = write_all(fd, head, strlen(head));
	if (!error)
		error = write_all(fd, text, strlen(text));
	if (close(fd) && !error)
		error = errno;
	if (!error && rename(path, keep.path))
		error = errno;
	if (error)
		unlink(path);
	return error;
}

static int on_again(sd_event_source *s, uint64_t usec, void *data)
{
	keep_save(data);
	return 0;
}

/* A birth that is not known is asked for again: a number alone may become another process's. */
static void save_again(struct daemon *d)
{
	if (!keep.again)
		sd_event_add_time_relative(d->event, &keep.again, CLOCK_MONOTONIC, AGAIN_US, 0,
					   on_again, d);
	else if (sd_event_source_set_time_relative(keep.again, AGAIN_US) >= 0)
		sd_event_source_set_enabled(keep.again, SD_EVENT_ONESHOT);
}

void keep_save(struct daemon *d)
{
	char head[160], id[40], *text;
	unsigned int lines;
	int error;

	if (!keep.path[0])
		return;
	text = objects_text(d, &lines);
	if (keep.unknown)
		save_again(d);
	if (text && keep.saved && !strcmp(text, keep.saved)) {
		free(text);
		return;
	}
	boot_id(id);
	snprintf(head, sizeof(head), "{\"rtxg-state\":%d,\"boot\":\"%s\",\"lines\":%u}\n", FORMAT,
		 id, lines);
	if (!text)
		error = ENOMEM;
	else if (!lines)
		error = unlink(keep.path) && errno != ENOENT ? errno : 0;
	else
		error = replace(head, text);
	if (error && error != keep.error)
		fprintf(stderr,
			"rtxgd: %s cannot be written: %s; a restart would lose what was made "
			"at run time\n",
			keep.path, strerrordesc_np(error));
	keep.error = error;
	free(keep.saved);
	keep.saved = error ? NULL : text;
	if (error)
		free(text);
	for (uint32_t i = 0; i < VGPUS_MAX; i++)
		if (d->vgpus[i].used && d->vgpus[i].origin == ORIGIN_RUNTIME)
			strcpy(d->vgpus[i].source, error ? "" : keep.path);
}

json_t *keep_warn(json_t *reply)
{
	if (keep.error)
		json_object_set_new(reply, "warning",
				    json_sprintf("a restart of rtxgd would lose it: %s cannot be "
						 "written: %s",
						 keep.path, strerrordesc_np(keep.error)));
	return reply;
}

/* --- reading ---------------------------------------------------------------------------------- */

static void say_lost(const char *what, const char *why)
{
	fprintf(stderr, "rtxgd: %s: %s: %s\n", keep.path, what, why);
	if (!keep.lost[0])
		snprintf(keep.lost, sizeof(keep.lost), "%s: %s", what, why);
}

static int restore_gpu(struct daemon *d, const struct request *r, char *why, size_t size)
{
	struct rtxg_gpu_params params;
	struct gpu *gpu;
	int error;

	if (!given(r, M_GPU)) {
		params_merge_gpu(&d->gpu_default, r);
		d->gpu_default_changed = true;
		return 0;
	}
	gpu = objects_gpu_get(d, r->gpu, ORIGIN_RUNTIME, NULL, why, size, &error);
	if (!gpu)
		return error;
	params = gpu->params;
	params_merge_gpu(&params, r);
	error = objects_gpu_change(d, gpu, &params, why, size, NULL);
	gpu->changed = !error;
	return error;
}

/* The program that made it lives on, and so may programs that it started. */
static void follow_creator(struct daemon *d, struct vgpu *vgpu, const struct request *r)
{
	pid_t pid = (pid_t)r->pid;

	vgpu->awaited = true;
	if (!given(r, M_PID) || !process_is(pid, pid, (unsigned long long)r->began))
		return;
	if (objects_vgpu_follow(d, vgpu, (int)syscall(SYS_pidfd_open, pid, 0u), pid))
		return;
	/* The number may have gone to another process before it was opened. */
	if (process_is(pid, pid, (unsigned long long)r->began))
		vgpu->creator_began = (unsigned long long)r->began;
	else
		objects_vgpu_unfollow(vgpu);
}

/* What a file configures meanwhile under the name of one that was made at run time wins. */
static int restore_vgpu(struct daemon *d, const struct request *r, bool changed, char *why,
			size_t size)
{
	struct vgpu *vgpu = objects_vgpu_find(d, r->vgpu), next;
	bool configured = vgpu && (vgpu->origin == ORIGIN_CONFIG || vgpu->origin == ORIGIN_BUILTIN);
	int error;

	if (changed && !vgpu) {
		snprintf(why, size, "it is configured no longer");
		return -ENOENT;
	}
	if (!vgpu) {
		/* The module would have it. */
		if (r->transient && !d->host->here)
			return 0;
		next = params_vgpu(d, r->vgpu, r->transient ? ORIGIN_TRANSIENT : ORIGIN_RUNTIME);
		if (given(r, M_GPU))
			strcpy(next.gpu, r->gpu);
		params_merge_vgpu(&next, r);
		error = objects_vgpu_create(d, &next, &vgpu, why, size, NULL);
		if (!error && r->transient)
			follow_creator(d, vgpu, r);
		return error;
	}
	if (configured && !changed)
		return 0;
	next = *vgpu;
	params_merge_vgpu(&next, r);
	error = objects_vgpu_change(d, vgpu, &next, why, size, NULL);
	if (!error && changed)
		vgpu->changed = true;
	return error;
}

static int restore_cgroup(struct daemon *d, const struct request *r, char *why, size_t size)
{
	struct vgpu *vgpu = objects_vgpu_find(d, r->vgpu);
	char name[CGROUP_MAX + 1];
	int error;

	if (!vgpu) {
		snprintf(why, size, "there is no such vGPU any more");
		return -ENOENT;
	}
	if (cgroup_clean(r->cgroup, name)) {
		snprintf(why, size, "it is not the name of a cgroup");
		return -EINVAL;
	}
	error = binding_add(d, name, vgpu, (uid_t)r->uid, false, why, size);
	if (!error && r->transient)
		binding_follow(d, name);
	return error;
}

static int restore_pool(struct daemon *d, const struct request *r, char *why, size_t size)
{
	uint64_t mask = 0;
	int error = 0;

	if (objects_pool_find(d, r->pool))
		return 0; /* configured meanwhile, or the module's */
	for (uint32_t i = 0; i < r->gpus_count && !error; i++) {
		struct gpu *gpu =
			objects_gpu_get(d, r->gpus[i], ORIGIN_RUNTIME, NULL, why, size, &error);

		if (gpu)
			mask |= 1ull << gpu->id;
	}
	if (!error)
		error = objects_pool_create(d, r->pool, mask, why, size);
	if (!error)
		objects_pool_find(d, r->pool)->made = true;
	return error;
}

/*
 * Has the user no quota left? A program that lives and never comes back may have had many tasks,
 * and what is kept of them stays. So as many are kept of a user as the user may have open.
 */
static bool too_many(const struct daemon *d, uid_t user)
{
	uint32_t have = 0;

	if (user == 0 || (!d->system && user == geteuid()))
		return false;
	for (uint32_t i = 0; i < keep.tasks_count; i++)
		have += keep.tasks[i].user == user;
	return !user_may(have, d->tasks_per_user, keep.tasks_count, TASKS_MAX, RESERVE_TASKS);
}

static bool await_task(const struct daemon *d, struct kept_task *k)
{
	struct kept_task *more = NULL;

	k->user = user_key(d, k->uid);
	for (uint32_t i = 0; i < keep.tasks_count; i++)
		if (keep.tasks[i].pid == k->pid && keep.tasks[i].page_inode == k->page_inode) {
			keep.tasks[i] = *k;
			return true;
		}
	if (keep.tasks_count < TASKS_MAX && !too_many(d, k->user))
		more = realloc(keep.tasks, (keep.tasks_count + 1) * sizeof(*more));
	if (!more)
		return false;
	keep.tasks = more;
	keep.tasks[keep.tasks_count++] = *k;
	return true;
}

/*
 * Does the process live that had the task? Where its birth was never told, one of that number and
 * user may be another. It has the page only if it is the same.
 */
static bool lives(const struct kept_task *k)
{
	uid_t uid;

	if (k->began)
		return process_is(k->pid, k->pid, k->began);
	return process_owner(k->pid, &uid) && uid == k->uid;
}

static int restore_task(const struct daemon *d, const struct request *r, char *why, size_t size)
{
	struct kept_task k = { .pid = (pid_t)r->pid,
			       .uid = (uid_t)r->uid,
			       .began = (unsigned long long)r->began,
			       .page_inode = (uint64_t)r->page };

	if (!lives(&k))
		return 0; /* it has ended */
	params_merge_task(&k.params, r);
	strcpy(k.vgpu, r->vgpu);
	if (!await_task(d, &k)) {
		snprintf(why, size, "there is no room");
		return -ENOMEM;
	}
	return 0;
}

#define B(member) MESSAGE_BIT(M_##member)
static const struct message_op ops[] = {
	{ "gpu-default", 0, MESSAGE_GPU_PARAMS, NULL, 0 },
	{ "gpu", B(GPU), MESSAGE_GPU_PARAMS, NULL, 0 },
	{ "vgpu", B(VGPU), B(GPU) | MESSAGE_VGPU_PARAMS | B(TRANSIENT) | B(PID) | B(BEGAN), NULL,
	  0 },
	{ "vgpu-changed", B(VGPU), B(GPU) | MESSAGE_VGPU_PARAMS, NULL, 0 },
	{ "cgroup", B(VGPU) | B(CGROUP) | B(UID), B(TRANSIENT), NULL, 0 },
	{ "pool", B(POOL) | B(GPUS), 0, NULL, 0 },
	{ "task", B(VGPU) | B(PID) | B(PAGE), B(BEGAN) | B(UID) | MESSAGE_TASK_PARAMS, NULL, 0 },
	{ 0 },
};
#undef B

static int restore_line(struct daemon *d, const char *line, size_t length)
{
	struct request r;
	char why[512], what[2 * RTXG_NAME_MAX];
	int error = message_parse(ops, line, length, &r, why, sizeof(why));

	snprintf(what, sizeof(what), "%s %s", r.op_name,
		 r.vgpu[0]   ? r.vgpu
		 : r.gpu[0]  ? r.gpu
		 : r.pool[0] ? r.pool
			     : "");
	if (error)
		;
	else if (!strncmp(r.op_name, "gpu", 3))
		error = restore_gpu(d, &r, why, sizeof(why));
	else if (!strncmp(r.op_name, "vgpu", 4))
		error = restore_vgpu(d, &r, !strcmp(r.op_name, "vgpu-changed"), why, sizeof(why));
	else if (!strcmp(r.op_name, "cgroup"))
		error = restore_cgroup(d, &r, why, sizeof(why));
	else if (!strcmp(r.op_name, "pool"))
		error = restore_pool(d, &r, why, sizeof(why));
	else
		error = restore_task(d, &r, why, sizeof(why));
	if (error)
		say_lost(what, why);
	return error;
}

/* The whole file, to be freed; NULL with an errno, or with 0 where there is none. */
static char *read_file(int *error)
{
	struct stat st;
	char *text = NULL;
	ssize_t n = 0;
	int fd = open(keep.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	*error = 0;
	if (fd < 0) {
		*error = errno == ENOENT ? 0 : errno;
		return NULL;
	}
	if (fstat(fd, &st))
		*error = errno;
	else if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1 ||
		 st.st_mode & 022)
		*error = EPERM;
	else if (st.st_size > FILE_MAX_SIZE)
		*error = EFBIG;
	else if (!(text = malloc((size_t)st.st_size + 1)))
		*error = ENOMEM;
	else if ((n = read(fd, text, (size_t)st.st_size)) < 0)
		*error = errno;
	close(fd);
	if (*error) {
		free(text);
		return NULL;
	}
	text[n] = 0;
	return text;
}

/* 1: of this boot; 0: of another, when all that it tells of ended; negative: not one of ours. */
static int check_head(const char *line, unsigned int *lines, char *why, size_t size)
{
	json_t *head = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
	json_int_t format = json_integer_value(json_object_get(head, "rtxg-state"));
	const char *boot = json_string_value(json_object_get(head, "boot"));
	char id[40];
	int ret = -EINVAL;

	boot_id(id);
	*lines = (unsigned int)json_integer_value(json_object_get(head, "lines"));
	if (!format || !boot)
		snprintf(why, size, "it does not begin as such a file does");
	else if (format != FORMAT)
		snprintf(why, size, "it has format %lld and this rtxgd reads %d", (long long)format,
			 FORMAT);
	else
		ret = !strcmp(boot, id);
	json_decref(head);
	return ret;
}

/* A task comes back to it. */
static bool is_awaited(const struct vgpu *vgpu)
{
	for (uint32_t i = 0; i < keep.tasks_count; i++)
		if (!strcmp(keep.tasks[i].vgpu, vgpu->name))
			return true;
	return false;
}

static int on_awaited(sd_event_source *s, uint64_t usec, void *data)
{
	struct daemon *d = data;

	for (uint32_t i = keep.tasks_count; i-- > 0;) {
		if (!lives(&keep.tasks[i]))
			keep.tasks[i] = keep.tasks[--keep.tasks_count];
		breathe(d);
	}
	for (uint32_t i = 0; i < VGPUS_MAX; i++) {
		if (!d->vgpus[i].used || !d->vgpus[i].awaited)
			continue;
		d->vgpus[i].awaited = is_awaited(&d->vgpus[i]);
		objects_vgpu_collect(d, &d->vgpus[i]);
	}
	keep.awaiting = false;
	if (keep.tasks_count && sd_event_source_set_time_relative(s, AWAIT_US) >= 0)
		sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
	keep_save(d);
	return 0;
}

static void restore_lines(struct daemon *d, char *text)
{
	unsigned int lines = 0, read = 0;
	char *line = text, *end, why[160];
	int ret;

	end = strchr(line, '\n');
	ret = check_head(line, &lines, why, sizeof(why));
	if (ret < 0 || !end) {
		say_lost("what was made at run time is lost", ret < 0 ? why : "it is cut short");
		return;
	}
	if (!ret)
		return;
	for (line = end + 1; (end = strchr(line, '\n')); line = end + 1) {
		restore_line(d, line, (size_t)(end - line));
		read++;
	}
	if (read != lines) {
		snprintf(why, sizeof(why), "%u of its %u lines are there", read, lines);
		say_lost("it is cut short", why);
	}
}

void keep_restore(struct daemon *d)
{
	char *text;
	int error;

	snprintf(keep.path, sizeof(keep.path), "%s.state", d->socket_path);
	text = read_file(&error);
	if (error)
		say_lost("what was made at run time is lost",
			 error == EPERM ? "the file must be the daemon's own, and writable by no "
					  "other user"
					: strerrordesc_np(error));
	if (text) {
		keep.awaiting = true;
		restore_lines(d, text);
		sd_event_add_time_relative(d->event, NULL, CLOCK_MONOTONIC, AWAIT_US, 0, on_awaited,
					   d);
	}
	free(text);
	keep_save(d);
}

bool keep_claim(struct daemon *d, pid_t pid, uint64_t page_inode, struct vgpu **vgpu,
		struct rtxg_task_params *params)
{
	struct kept_task k;

	for (uint32_t i = 0; i < keep.tasks_count; i++) {
		k = keep.tasks[i];
		if (k.page_inode != page_inode || k.pid != pid || !lives(&k))
			continue;
		keep.tasks[i] = keep.tasks[--keep.tasks_count];
		*vgpu = objects_vgpu_find(d, k.vgpu);
		*params = k.params;
		return *vgpu != NULL;
	}
	/*
	 * It came, waited in vain for the answer, and comes again before its first try is closed.
	 */
	for (uint32_t i = 0; keep.awaiting && i < d->tasks_top; i++) {
		const struct task *task = &d->tasks[i];

		if (!task->used || !task->placed || task->pid != pid ||
		    task->page_inode != page_inode)
			continue;
		*vgpu = task->moving_to ? task->moving_to : task->vgpu;
		*params = task->permit.params;
		return true;
	}
	return false;
}

void keep_closed(struct task *task)
{
	struct birth last = { 0 };
	struct kept_task k;

	if (keep.awaiting && task->placed && kept(task, &k, &last))
		await_task(task->connection->daemon, &k);
}

void keep_doctor(const struct daemon *d, json_t *checks)
{
	if (keep.error)
		report_check(checks, "state", false,
			     "make room there, or make the folder writable for rtxgd; then change "
			     "any vGPU (\"rtxg vgpu set\")",
			     "%.100s cannot be written: %s; a restart would lose what was made at "
			     "run time",
			     keep.path, strerrordesc_np(keep.error));
	else
		report_check(
			checks, "state", !keep.lost[0],
			"make again what is missing (\"rtxg vgpu create\"); the line goes with "
			"the next start",
			"%.240s",
			keep.lost[0]		    ? keep.lost
			: keep.saved && *keep.saved ? "what was made at run time outlives a restart"
						    : "nothing was made at run time");
}
