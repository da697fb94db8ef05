// SPDX-License-Identifier: MIT
/*
 * task.c - a task from open to death: its page, its doorbell, its place in a vGPU. May not trust
 * anything that came from the client but its descriptor's kind, which it checks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access.h"
#include "devices.h"
#include "discard.h"
#include "fence.h"
#include "history.h"
#include "holes.h"
#include "host.h"
#include "inherit.h"
#include "keep.h"
#include "objects.h"
#include "params.h"
#include "refused.h"
#include "reply.h"
#include "task.h"
#include "user.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* --- opening ---------------------------------------------------------------------------------- */

/*
 * Is it a task's page? Without the seals the client could cut the memory away under us. They come
 * first: a file that has none may be of a user's own file system, which answers when it likes.
 */
static bool is_page(int fd, uint64_t *inode)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) || st.st_size != RTXG_PAGE_SIZE)
		return false;
	*inode = st.st_ino;
	return true;
}

/* A page of our own, or the one that the task had under a host before us. */
static int get_page(struct daemon *d, int *fd, bool takeover, struct rtxg_page **page,
		    uint64_t *inode, char *why, size_t size)
{
	struct stat st;
	void *map;

	if (takeover) {
		if (!is_page(*fd, inode)) {
			snprintf(why, size,
				 "the descriptor that came with takeover is not a task's page");
			return -EINVAL;
		}
	} else {
		*fd = memfd_create("rtxg-page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (*fd < 0 || ftruncate(*fd, RTXG_PAGE_SIZE) ||
		    fcntl(*fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL)) {
			int error = -errno;

			snprintf(why, size, "no page can be made for the task: %s%s",
				 strerrordesc_np(-error),
				 error == -EFBIG ? " (\"ulimit -f\" where rtxgd was started)" : "");
			if (*fd >= 0)
				close(*fd);
			*fd = -1;
			return error;
		}
	}
	if (!takeover)
		*inode = fstat(*fd, &st) ? 0 : st.st_ino;
	map = mmap(NULL, RTXG_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (map == MAP_FAILED) {
		snprintf(why, size, "the task's page cannot be mapped: %s", strerrordesc_np(errno));
		if (!takeover)
			close(*fd);
		return -ENOMEM;
	}
	holes_add(map);
	*page = map;
	return 0;
}

static void write_page(struct daemon *d, struct task *task)
{
	struct rtxg_page *page = task->permit.page;

	page->magic = RTXG_PAGE_MAGIC;
	page->version = RTXG_PAGE_VERSION;
	page->size = sizeof(*page);
	page->flags = d->fail_closed ? RTXG_PAGE_F_FAIL_CLOSED : 0;
	page->closed_errno = 0;
	page->gpu = task->gpu->id;
	page->host_generation = d->generation;
}

int task_check_priority(const struct connection *c, uint32_t limit, uint32_t wanted, char *why,
			size_t size)
{
	if (rtxg_task_priority_allowed(limit, wanted, access_raise(c)))
		return 0;
	snprintf(why, size,
		 "priority %u is above the %u that is configured; raising it needs root or group "
		 "rtxg",
		 wanted, limit);
	return -EPERM;
}

/* The vGPU that the process names or that the rules give it, if it may use that. */
struct vgpu *task_vgpu(struct connection *c, const struct request *r, char *why, size_t size,
		       int *error)
{
	struct daemon *d = c->daemon;
	char name[RTXG_NAME_MAX + 1];
	struct vgpu *vgpu;

	if (given(r, M_VGPU))
		strcpy(name, r->vgpu);
	else
		access_match(d, c->pid, c->uid, name);
	vgpu = objects_vgpu_find(d, name);
	if (!vgpu) {
		snprintf(why, size,
			 "there is no vGPU %s; \"rtxg vgpu ls\" lists them, \"rtxg vgpu create\" "
			 "makes one",
			 name);
		*error = -ENOENT;
		return NULL;
	}
	if (!access_vgpu(vgpu, c)) {
		snprintf(why, size, "user %u may not use vGPU %s", c->uid, name);
		*error = -EACCES;
		return NULL;
	}
	return vgpu;
}

int task_device(struct connection *c, const char *gpu, char *why, size_t size)
{
	struct daemon *d = c->daemon;
	char known[300];

	if (d->gpus_by_claim || c->user->trusted || access_administer(c) ||
	    objects_gpu_find(d, gpu) || objects_gpu_on_bus(gpu) || devices_has(gpu))
		return 0;
	if (devices_look(d))
		return -EINPROGRESS;
	devices_known(known, sizeof(known));
	snprintf(why, size,
		 "there is no GPU %s: %s (an administrator can name others: [GPU NAME] or "
		 "GPUNames=any)",
		 gpu, known);
	return -ENODEV;
}

/* The user whose quotas hold; NULL: for an administrator none does. */
static struct user *bound(const struct connection *c)
{
	return c->user->trusted || access_administer(c) ? NULL : c->user;
}

/* Makes room for a task in the vGPU on the GPU that the request names. */
static int make_room(struct connection *c, const struct request *r, struct vgpu *vgpu,
		     struct account **account, char *why, size_t size, struct rtxg_refusal *refusal)
{
	struct daemon *d = c->daemon;
	struct gpu *gpu;
	int error;

	gpu = objects_gpu_get(d, given(r, M_GPU) ? r->gpu : "0", ORIGIN_TASK, c->user, why, size,
			      &error);
	if (!gpu)
		return error;
	gpu->last_used_ns = rtxg_now_ns();
	*account = objects_account_get(d, vgpu, gpu, bound(c), why, size, &error, refusal);
	return *account ? 0 : error;
}

int task_place(struct connection *c, const struct request *r, char *why, size_t size,
	       struct rtxg_refusal *refusal)
{
	struct account *account;
	struct daemon *d = c->daemon;
	const struct gpu *gpu;
	int error;
	struct vgpu *vgpu = task_vgpu(c, r, why, size, &error);
	bool there;

	if (!vgpu)
		return error;
	gpu = objects_gpu_find(d, r->gpu);
	there = gpu && vgpu->on[gpu->id];
	error = make_room(c, r, vgpu, &account, why, size, refusal);
	/* A question takes no place. The module's tasks find one there when they open. */
	if (!error && !there && d->host->here)
		objects_account_put(d, account);
	return error;
}

/* Whether the connection may have a task at all. */
static int may_open(const struct connection *c, bool takeover, int fd, char *why, size_t size)
{
	struct daemon *d = c->daemon;

	if (takeover != (fd >= 0)) {
		snprintf(why, size, "%s",
			 takeover ? "takeover needs the task's page as a descriptor"
				  : "a descriptor came that was not asked for");
		return -EINVAL;
	}
	if (c->task) {
		snprintf(why, size, "this connection has a task already; each task needs its own");
		return -EALREADY;
	}
	if (!d->free_tasks_count) {
		snprintf(why, size, "there are %u tasks already, which is the most", TASKS_MAX);
		return -ENOSPC;
	}
	if (!c->user->trusted && !access_administer(c) &&
	    !user_may(c->user->tasks, d->tasks_per_user, d->tasks_count, TASKS_MAX,
		      RESERVE_TASKS)) {
		snprintf(why, size,
			 "user %u has %u tasks already: of %u in all, one user has at most %u "
			 "(TasksPerUser=), and no more than are left",
			 c->uid, c->user->tasks, TASKS_MAX, d->tasks_per_user);
		return -ENOSPC;
	}
	return 0;
}

/* The host has taken the task: so do our tables. */
static void enter(struct daemon *d, struct task *task)
{
	task->used = true;
	d->free_tasks_count--;
	task->connection->task = task;
	task->connection->user->tasks++;
	d->tasks_count++;
	if (task->id >= d->tasks_top)
		d->tasks_top = task->id + 1;
	task->gpu->tasks++;
	task->vgpu->tasks++;
	task->account->tasks++;
	history_task_opened(d, task->account);
	write_page(d, task);
}

/* Hands over the doorbell, and the page unless the client has it already; listens. */
static int hand_over(struct connection *c, struct task *task, int page_fd, bool takeover)
{
	struct epoll_event ring = { .events = EPOLLIN | EPOLLET, .data.ptr = task };
	struct daemon *d = c->daemon;
	int fds[2] = { page_fd, task->doorbell }, error;
	json_t *reply = json_pack("{s:b, s:s, s:i, s:s, s:s, s:I, s:i}", "ok", 1, "op", "open",
				  "task", (int)task->id, "gpu", task->gpu->name, "vgpu",
				  task->vgpu->name, "generation", (json_int_t)d->generation,
				  "flags", (int)task->permit.page->flags);

	error = takeover ? reply_send(c, reply, fds + 1, 1) : reply_send(c, reply, fds, 2);
	if (!error && epoll_ctl(d->fast, EPOLL_CTL_ADD, task->doorbell, &ring))
		error = -errno;
	if (error)
		c->closing = true; /* the connection's end closes the task */
	else if (takeover)
		host_look(d, task); /* it may be waiting already */
	return error;
}

/* The process may go on all the same, UNMANAGED. */
static int refuse(struct connection *c, int error, const char *why,
		  const struct rtxg_refusal *refusal)
{
	refused_note(c, error, why);
	return reply_error(c, "open", error, why, refusal);
}

int task_open(struct connection *c, const struct request *r, int fd)
{
	struct daemon *d = c->daemon;
	struct rtxg_task_params params;
	struct rtxg_refusal refusal = { 0 };
	struct account *account;
	struct rtxg_page *page = NULL;
	char why[512];
	bool takeover = given(r, M_TAKEOVER), placed;
	int page_fd = fd, doorbell = -1, error;
	struct vgpu *vgpu = NULL;
	uint64_t inode = 0;
	struct task *task;
	uint32_t id;

	error = may_open(c, takeover, fd, why, sizeof(why));
	if (!error && given(r, M_GPU))
		error = task_device(c, r->gpu, why, sizeof(why));
	c->later = error == -EINPROGRESS;
	if (c->later)
		return error;
	if (error)
		return refuse(c, error, why, NULL);
	/* Under the daemon before, another client than the task may have said where it belongs. */
	placed = takeover && is_page(fd, &inode) && keep_claim(d, c->pid, inode, &vgpu, &params);
	if (!placed)
		vgpu = task_vgpu(c, r, why, sizeof(why), &error);
	if (vgpu)
		error = make_room(c, r, vgpu, &account, why, sizeof(why), &refusal);
	if (error)
		return refuse(c, error, why, &refusal);
	if (!placed) {
		params = (struct rtxg_task_params){ 0 };
		params_merge_task(&params, r);
		params.priority = rtxg_task_priority(vgpu->task_priority, params.priority);
		error = task_check_priority(c, vgpu->task_priority, params.priority, why,
					    sizeof(why));
	}
	if (error)
		return refuse(c, error, why, NULL);

	error = get_page(d, &page_fd, takeover, &page, &inode, why, sizeof(why));
	if (error)
		return refuse(c, error, why, NULL);
	doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (doorbell < 0) {
		error = -errno;
		snprintf(why, sizeof(why), "no doorbell can be made for the task: %s",
			 strerrordesc_np(errno));
		goto fail;
	}
	id = d->free_tasks[d->free_tasks_count - 1];
	task = &d->tasks[id];
	*task = (struct task){
		.id = id,
		.connection = c,
		.pid = c->pid,
		.uid = c->uid,
		.permit = { .page = page, .params = params },
		.page_inode = inode,
		.placed = placed,
		.found = !placed && !given(r, M_VGPU),
		.doorbell = doorbell,
		.gpu = account->gpu,
		.vgpu = vgpu,
		.account = account,
		.priority_limit = rtxg_task_priority_limit(vgpu->task_priority, params.priority),
	};
	error = host_open(d, task);
	if (error) {
		refusal = d->permits.refusal;
		objects_explain(why, sizeof(why), "the task cannot be opened", &refusal, error);
		goto fail;
	}
	for (uint32_t i = 0; i < RTXG_PAGE_LANES; i++)
		task->fences[i].event = -1;
	enter(d, task);
	refused_forget(c->pid);
	error = hand_over(c, task, page_fd, takeover);
	if (!takeover)
		close(page_fd);
	return error;
fail:
	holes_remove(page);
	munmap(page, RTXG_PAGE_SIZE);
	if (!takeover)
		close(page_fd);
	if (doorbell >= 0)
		close(doorbell);
	return refuse(c, error, why, refusal.what ? &refusal : NULL);
}

/* --- changing --------------------------------------------------------------------------------- */

/* A move back to where the task still is brings nothing from the vGPU that it did not reach. */
uint32_t task_priority_limit(const struct task *task, const struct vgpu *to)
{
	return to && to != task->vgpu ? to->task_priority : task->priority_limit;
}

int task_set(struct connection *c, struct task *task, const struct request *r, char *why,
	     size_t size, struct rtxg_refusal *refusal)
{
	struct daemon *d = c->daemon;
	struct rtxg_task_params params = task->permit.params;
	struct vgpu *vgpu = NULL, *missed = task->moving_to;
	int ret;

	if (given(r, M_VGPU)) {
		vgpu = objects_vgpu_find(d, r->vgpu);
		if (!vgpu) {
			snprintf(why, size, "there is no vGPU %s; \"rtxg vgpu ls\" lists them",
				 r->vgpu);
			return -ENOENT;
		}
		if (task->pool) {
			snprintf(why, size,
				 "task %u has or wants a GPU of pool %s; it cannot be moved before "
				 "it gives that up",
				 task->id, task->pool->name);
			return -EBUSY;
		}
		if (!objects_account_get(d, vgpu, task->gpu, bound(c), why, size, &ret, refusal))
			return ret;
	}
	params_merge_task(&params, r);
	if (vgpu)
		params.priority = rtxg_task_priority_moved(task_priority_limit(task, vgpu),
							   params.priority, access_raise(c));
	/*
	 * The change may end an earlier move, and with it a transient vGPU that had no other task:
	 * not the one to move to, or the task would keep what it was to have there.
	 */
	if (vgpu)
		vgpu->entered = true;
	/* A task gives itself nothing: it has the right, and may lose it. */
	ret = d->host->task_set(d, task, &params,
				c->task != task && given(r, M_PRIORITY) && access_raise(c));
	/* The module ends vGPUs by itself; then the picture of it shows none. */
	if (vgpu && vgpu != objects_vgpu_find(d, r->vgpu)) {
		snprintf(why, size, "vGPU %s has just ended with its last task", r->vgpu);
		return -ENOENT;
	}
	if (!ret && vgpu)
		ret = d->host->task_move(d, task, vgpu);
	if (ret)
		*refusal = d->refusal;
	if (vgpu) {
		vgpu->entered = false;
		objects_vgpu_collect(d, vgpu);
	}
	/* The task may have been the last on its way there. */
	if (missed)
		objects_vgpu_collect(d, missed);
	if (ret) {
		objects_explain(why, size, "the task cannot be changed", refusal, ret);
	}
	return ret;
}

/* --- what the host reports -------------------------------------------------------------------- */

static void pool_granted(struct daemon *d, struct task *task)
{
	reply_send(task->connection,
		   json_pack("{s:b, s:s, s:s}", "ok", 1, "op", "pool-acquire", "gpu",
			     d->gpus[task->permit.pool_gpu].name),
		   NULL, 0);
}

static void moved(struct daemon *d, struct task *task, struct account *from)
{
	struct vgpu *left = task->vgpu;

	from->tasks--;
	left->tasks--;
	task->vgpu = task->account->vgpu;
	task->moving_to = NULL;
	task->account->tasks++;
	task->vgpu->tasks++;
	if (task->account != from)
		history_task_opened(d, task->account);
	if (task->vgpu != left)
		task->priority_limit = rtxg_task_priority_limit(task->vgpu->task_priority,
								task->permit.params.priority);
	/* A transient vGPU whose creator has ended goes with its last task. */
	objects_vgpu_collect(d, left);
}

const struct host_news task_news = { .pool_granted = pool_granted, .moved = moved };

/* --- end -------------------------------------------------------------------------------------- */

void task_close(struct daemon *d, struct task *task)
{
	struct vgpu *vgpu = task->vgpu, *moving_to = task->moving_to;
	struct user *user = task->connection->user;
	uint64_t own;

	/* The client may wait for its doorbell as often as for its socket. */
	own = user_own_ns();
	epoll_ctl(d->fast, EPOLL_CTL_DEL, task->doorbell, NULL);
	user_packet(user, user_own_ns() - own);
	inherit_thread(d, task, 0);
	keep_closed(task);
	fence_drop(d, task);
	task->used = false;
	if (task->pool)
		task->pool->members--;
	task->connection->task = NULL;
	user->tasks--;
	task->gpu->tasks--;
	task->gpu->last_used_ns = rtxg_now_ns();
	task->account->tasks--;
	vgpu->tasks--;
	d->tasks_count--;
	d->free_tasks[d->free_tasks_count++] = task->id;
	while (d->tasks_top && !d->tasks[d->tasks_top - 1].used)
		d->tasks_top--;
	/* What it held goes to others. */
	host_close(d, task);
	holes_remove(task->permit.page);
	munmap(task->permit.page, RTXG_PAGE_SIZE);
	/* The last close ends all that still waits for it. */
	discard(user->uid, task->doorbell, false);
	objects_vgpu_collect(d, vgpu);
	if (moving_to)
		objects_vgpu_collect(d, moving_to);
	if (!d->tasks_count)
		d->idle_since = rtxg_now_ns();
}
