// SPDX-License-Identifier: MIT
/*
 * far_nvrm.c - see far_nvrm.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "far_nvrm.h"
#include "fake_nvrm.h"
#include "nvrm_abi.h"
#include "rtxg_clock.h"

#define FILES	    64
#define CLIENTS	    4
#define PINNED	    64
#define FDS	    1024
#define PARAMS_MOST 512u

/* A call, and its answer: what the request points to, and what that points to. */
struct message {
	uint32_t request; /* 0: to open a file, whose path is in arg */
	int32_t ret;	  /* of open: the test's number of the file */
	uint32_t params_size;
	uint8_t arg[sizeof(struct nv_card_info) * RM_GPUS_MAX] __attribute__((aligned(8)));
	uint8_t params[PARAMS_MOST] __attribute__((aligned(8)));
};

struct far_nvrm far_nvrm;
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static socklen_t address_size;

/* --- the test's side -------------------------------------------------------------------------- */

static struct file {
	int fd; /* 0: none */
	uint32_t clients[CLIENTS];
} files[FILES];
static struct {
	void *at;
	size_t length;
} pinned[PINNED];
static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;

/* Called with the fake driver's lock held, of all pages: most are the test's own. */
static void unpin(uint64_t from)
{
	pthread_mutex_lock(&pinned_lock);
	for (int i = 0; i < PINNED; i++)
		if (pinned[i].at && (uintptr_t)pinned[i].at == from) {
			munmap(pinned[i].at, pinned[i].length);
			pinned[i].at = NULL;
			__atomic_fetch_sub(&far_nvrm.pinned, 1, __ATOMIC_SEQ_CST);
		}
	pthread_mutex_unlock(&pinned_lock);
}

/* The child's pages in this process; 0: none. */
static uint64_t pin(int fd, size_t length)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int i = 0;

	close(fd);
	if (at == MAP_FAILED)
		return 0;
	pthread_mutex_lock(&pinned_lock);
	while (i < PINNED && pinned[i].at)
		i++;
	if (i == PINNED)
		abort();
	pinned[i].at = at;
	pinned[i].length = length;
	pthread_mutex_unlock(&pinned_lock);
	__atomic_fetch_add(&far_nvrm.pinned, 1, __ATOMIC_SEQ_CST);
	return (uintptr_t)at;
}

static void free_client(uint32_t client)
{
	struct nvos00 f = { .root = client, .object = client };

	fake_nvrm_sys.ioctl(NULL, 0, RM_IOC(NV_ESC_RM_FREE, struct nvos00), &f);
}

static void keep_client(struct file *file, uint32_t from, uint32_t to)
{
	for (int i = 0; i < CLIENTS; i++)
		if (file->clients[i] == from) {
			file->clients[i] = to;
			return;
		}
	if (!from)
		abort();
}

static void carry_out(struct file *file, struct message *m, int passed)
{
	struct nvos64 *a = (void *)m->arg;
	struct nvos54 *c = (void *)m->arg;
	struct nvos00 *f = (void *)m->arg;
	struct nvrm_memory_of_process *p = (void *)m->arg;
	bool allocates = m->request == RM_IOC(NV_ESC_RM_ALLOC, struct nvos64);
	bool gives = m->request == RM_IOC(NV_ESC_RM_ALLOC_MEMORY, struct nvrm_memory_of_process);

	if (allocates && m->params_size)
		a->params = (uintptr_t)m->params;
	if (m->request == RM_IOC(NV_ESC_RM_CONTROL, struct nvos54) && m->params_size)
		c->params = (uintptr_t)m->params;
	if (gives)
		p->address = passed < 0 ? 0 : pin(passed, p->limit + 1);
	m->ret = fake_nvrm_sys.ioctl(NULL, file->fd, m->request, m->arg);
	if (gives && p->status)
		unpin(p->address);
	if (allocates && a->class_id == NV_CLASS_ROOT_CLIENT && !a->status)
		keep_client(file, 0, a->object);
	if (m->request == RM_IOC(NV_ESC_RM_FREE, struct nvos00) && f->object == f->root)
		keep_client(file, f->root, 0);
}

static void end_file(struct file *file)
{
	for (int i = 0; i < CLIENTS; i++)
		if (file->clients[i])
			free_client(file->clients[i]);
	close(file->fd);
	memset(file, 0, sizeof(*file));
	__atomic_fetch_sub(&far_nvrm.files, 1, __ATOMIC_SEQ_CST);
}

static ssize_t receive(int fd, struct message *m, int *passed, int flags)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { m, sizeof(*m) };
	struct msghdr h = { .msg_iov = &part,
			    .msg_iovlen = 1,
			    .msg_control = &control,
			    .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(fd, &h, flags | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *head = got > 0 ? CMSG_FIRSTHDR(&h) : NULL;

	if (passed)
		*passed = -1;
	if (passed && head)
		memcpy(passed, CMSG_DATA(head), sizeof(int));
	return got;
}

static void serve(struct file *file)
{
	struct message m;
	int passed;
	ssize_t got = receive(file->fd, &m, &passed, 0);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got != sizeof(m)) {
		end_file(file);
		return;
	}
	if (m.request)
		carry_out(file, &m, passed);
	else
		m.ret = file->fd;
	/* one who is dead hears nothing */
	if (send(file->fd, &m, sizeof(m), MSG_NOSIGNAL) < 0 && errno == EAGAIN)
		abort();
}

static void take(int listens)
{
	int fd = accept4(listens, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), i = 0;

	if (fd < 0)
		return;
	while (i < FILES && files[i].fd)
		i++;
	if (i == FILES)
		abort();
	files[i].fd = fd;
	__atomic_fetch_add(&far_nvrm.files, 1, __ATOMIC_SEQ_CST);
}

static void *answer(void *arg)
{
	int listens = (int)(intptr_t)arg;

	for (;;) {
		struct pollfd p[FILES + 1] = { { .fd = listens, .events = POLLIN } };

		for (int i = 0; i < FILES; i++)
			p[i + 1] = (struct pollfd){ .fd = files[i].fd ? files[i].fd : -1,
						    .events = POLLIN };
		poll(p, FILES + 1, -1);
		for (int i = 0; i < FILES; i++)
			if (files[i].fd && p[i + 1].revents)
				serve(&files[i]);
		if (p[0].revents)
			take(listens);
	}
	return NULL;
}

void far_nvrm_start(void)
{
	int listens = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	pthread_t thread;

	/* Interrupts are raised for files whose process is dying. */
	signal(SIGPIPE, SIG_IGN);
	fake_nvrm_unpin = unpin;
	/* an address that the kernel chooses */
	if (listens < 0 || bind(listens, (void *)&address, sizeof(sa_family_t)) ||
	    listen(listens, FILES))
		abort();
	address_size = sizeof(address);
	if (getsockname(listens, (void *)&address, &address_size) ||
	    pthread_create(&thread, NULL, answer, (void *)(intptr_t)listens))
		abort();
}

/* --- a child's side --------------------------------------------------------------------------- */

static int32_t numbers[FDS]; /* the test's, of this process's files */

static int call(int fd, struct message *m, int passes)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { .space = { 0 } };
	struct iovec part = { m, sizeof(*m) };
	struct msghdr h = { .msg_iov = &part, .msg_iovlen = 1 };

	if (passes >= 0) {
		h.msg_control = &control;
		h.msg_controllen = sizeof(control);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &passes, sizeof(int));
	}
	if (sendmsg(fd, &h, MSG_NOSIGNAL) != sizeof(*m) || receive(fd, m, NULL, 0) != sizeof(*m))
		_exit(9);
	return m->ret;
}

static int far_open(void *ctx, const char *path)
{
	struct message m = { 0 };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0 || fd >= FDS || connect(fd, (void *)&address, address_size))
		_exit(9);
	strncpy((char *)m.arg, path, sizeof(m.arg) - 1);
	numbers[fd] = call(fd, &m, -1);
	return fd;
}

static int far_close(void *ctx, int fd)
{
	return close(fd) ? -errno : 0;
}

/* Puts memory that the test may have in the place of those pages, with what is in them. */
static int share(uint64_t at, size_t length)
{
	int fd = memfd_create("given-pages", MFD_CLOEXEC);

	if (fd < 0 || write(fd, (void *)(uintptr_t)at, length) != (ssize_t)length ||
	    mmap((void *)(uintptr_t)at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 0) == MAP_FAILED)
		_exit(9);
	madvise((void *)(uintptr_t)at, length, MADV_DONTFORK);
	return fd;
}

static int far_ioctl(void *ctx, int fd, uint32_t request, void *arg)
{
	uint32_t size = request >> 16 & 0x3fff;
	struct message m = { .request = request };
	struct nvos64 *a = arg;
	struct nvos54 *c = arg;
	struct nvrm_memory_of_process *p = arg;
	uint64_t params = 0;
	int passes = -1, ret;

	if (request == RM_IOC(NV_ESC_RM_ALLOC, struct nvos64)) {
		params = a->params;
		m.params_size = a->params_size;
	} else if (request == RM_IOC(NV_ESC_RM_CONTROL, struct nvos54)) {
		params = c->params;
		m.params_size = c->params_size;
	} else if (request == RM_IOC(NV_ESC_RM_ALLOC_MEMORY, struct nvrm_memory_of_process)) {
		params = p->address;
		passes = share(p->address, p->limit + 1);
	}
	if (size > sizeof(m.arg) || m.params_size > sizeof(m.params))
		_exit(9);
	memcpy(m.arg, arg, size);
	if (m.params_size)
		memcpy(m.params, (void *)(uintptr_t)params, m.params_size);
	if (request == RM_IOC(NV_ESC_RM_ALLOC, struct nvos64) && a->class_id == NV_CLASS_OS_EVENT) {
		struct nvrm_event_alloc *e = (void *)m.params;

		e->fd = (uint64_t)numbers[e->fd];
	}
	ret = call(fd, &m, passes);
	if (passes >= 0)
		close(passes);
	memcpy(arg, m.arg, size);
	if (request == RM_IOC(NV_ESC_RM_ALLOC, struct nvos64)) {
		a->params = params;
	} else if (request == RM_IOC(NV_ESC_RM_CONTROL, struct nvos54)) {
		c->params = params;
		memcpy((void *)(uintptr_t)params, m.params, m.params_size);
	} else if (passes >= 0) {
		p->address = params;
	}
	return ret;
}

static int far_map(void *ctx, int fd, size_t length, void **at)
{
	*at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return *at == MAP_FAILED ? -ENOMEM : 0;
}

static int far_munmap(void *ctx, void *at, size_t length)
{
	return munmap(at, length) ? -errno : 0;
}

/* As the driver: poll() takes all events. */
static int far_poll(void *ctx, int fd, uint64_t timeout_ns)
{
	int ret = nv_sys_linux.poll(ctx, fd, timeout_ns);
	struct message m;

	while (ret > 0 && receive(fd, &m, NULL, MSG_DONTWAIT) > 0)
		;
	return ret;
}

static uint64_t far_now(void *ctx)
{
	return rtxg_now_ns();
}

const struct nv_sys far_nvrm_sys = {
	.open = far_open,
	.close = far_close,
	.ioctl = far_ioctl,
	.mmap_writable = far_map,
	.munmap = far_munmap,
	.poll = far_poll,
	.now_ns = far_now,
};
