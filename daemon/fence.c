// SPDX-License-Identifier: MIT
/*
 * fence.c - a task's device says by itself that launches have completed: it writes a word in memory
 * that the task shares with us, and makes a descriptor readable. So the next task gets its permit
 * though the one before has no CPU, or is stopped (Linux-RTXG, section III.C).
 *
 * The memory is the task's own, and another process of its user may write to it: what it says is
 * believed as little as what the task's page says, and harms that task only.
 *
 * May not: decide anything; keep a descriptor whose poll could make us wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "discard.h"
#include "fence.h"
#include "holes.h"
#include "user.h"

#define SEALS	     (F_SEAL_SHRINK | F_SEAL_GROW)
#define NVIDIA_MAJOR 195u /* of /dev/nvidiaN; the kernel's list of devices names it */
#define EVENT	     "anon_inode:[eventfd]"

static void unmap(const struct fence *fence)
{
	if (!fence->page)
		return;
	holes_remove(fence->page);
	munmap(fence->page, RTXG_PAGE_SIZE);
}

int fence_set(struct task *task, const struct request *r, int fd, char *why, size_t size)
{
	struct fence *fence = &task->fences[r->lane];
	int seals = fd >= 0 ? fcntl(fd, F_GET_SEALS) : -1;
	struct stat st;
	void *page;

	/* Without the seals the client could cut the memory away under us. */
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) ||
	    st.st_size != RTXG_PAGE_SIZE) {
		snprintf(why, size,
			 "\"fence\" comes with a memfd of %u bytes that is sealed against "
			 "shrinking and growing",
			 RTXG_PAGE_SIZE);
		return -EINVAL;
	}
	if (r->offset % sizeof(uint32_t)) {
		snprintf(why, size, "offset %lld is not that of an aligned 32-bit word",
			 (long long)r->offset);
		return -EINVAL;
	}
	page = mmap(NULL, RTXG_PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		int error = -errno;

		snprintf(why, size, "the fence's memory cannot be mapped: %s",
			 strerrordesc_np(-error));
		return error;
	}
	unmap(fence);
	holes_add(page);
	fence->page = page;
	fence->word = (const uint32_t *)((const char *)page + r->offset);
	return 0;
}

/*
 * Only descriptors of which the kernel, or the driver of a GPU, answers at once: a file of a user's
 * own file system could answer when that user likes.
 */
static bool is_an_event(int fd)
{
	char path[64], target[64];
	struct statx st;
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, target, sizeof(target));
	if (length == (ssize_t)strlen(EVENT) && !memcmp(target, EVENT, strlen(EVENT)))
		return true;
	/* What the kernel knows of it, without asking the file system. */
	return !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) &&
	       S_ISCHR(st.stx_mode) && st.stx_rdev_major == NVIDIA_MAJOR;
}

/* The client may have as many waiters on it as it likes, and keep them busy meanwhile. */
static int set_event(struct daemon *d, const struct task *task, int op, int fd,
		     struct epoll_event *look)
{
	uint64_t own = user_own_ns();
	int ret = epoll_ctl(d->fast, op, fd, look) ? -errno : 0;

	user_packet(task->connection->user, user_own_ns() - own);
	return ret;
}

static void drop_event(struct daemon *d, const struct task *task, struct fence *fence)
{
	if (fence->event < 0)
		return;
	/* The client has it open too, so that its end here would not take it out of the set. */
	set_event(d, task, EPOLL_CTL_DEL, fence->event, NULL);
	discard(task->connection->user->uid, fence->event, false);
	fence->event = -1;
}

int fence_event(struct daemon *d, struct task *task, const struct request *r, int fd, char *why,
		size_t size)
{
	struct epoll_event look = { .events = EPOLLIN | EPOLLPRI | EPOLLET,
				    .data.ptr = fence_mark(task) };
	struct fence *fence = &task->fences[r->lane];
	struct rlimit files;
	int ours, error;

	if (!fence->word) {
		snprintf(why, size, "lane %lld has no fence; \"fence\" comes first",
			 (long long)r->lane);
		return -ENOENT;
	}
	if (fd < 0 || !is_an_event(fd)) {
		snprintf(why, size,
			 "\"fence-event\" comes with an eventfd or an event of the NVIDIA driver");
		return -EINVAL;
	}
	/* Those who come later need descriptors more than this task needs to be quick. */
	if (!getrlimit(RLIMIT_NOFILE, &files) && (rlim_t)fd > files.rlim_cur / 2) {
		snprintf(why, size,
			 "too many descriptors are open for another event (%llu at most)",
			 (unsigned long long)files.rlim_cur / 2);
		return -EMFILE;
	}
	ours = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	error = ours < 0 ? -errno : set_event(d, task, EPOLL_CTL_ADD, ours, &look);
	if (error) {
		snprintf(why, size, "the event cannot be listened to: %s", strerrordesc_np(-error));
		if (ours >= 0)
			discard(task->connection->user->uid, ours, false);
		return error;
	}
	drop_event(d, task, fence);
	fence->event = ours;
	return 0;
}

bool fence_passed(const struct task *task, uint32_t engine, uint64_t value)
{
	const uint32_t *word = task->fences[engine].word;

	return word && (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - (uint32_t)value) >= 0;
}

void fence_drop(struct daemon *d, struct task *task)
{
	for (uint32_t i = 0; i < RTXG_PAGE_LANES; i++) {
		struct fence *fence = &task->fences[i];

		drop_event(d, task, fence);
		unmap(fence);
		*fence = (struct fence){ .event = -1 };
	}
}
