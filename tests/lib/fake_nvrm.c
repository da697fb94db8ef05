// SPDX-License-Identifier: MIT
/*
 * fake_nvrm.c - see fake_nvrm.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "fake_nvrm.h"
#include "nvrm_abi.h"
#include "rtxg_clock.h"

#define OBJECTS	    512
#define PAGES_AT    0x120000000ull /* of the process, for the GPU: the first that were given */
#define ENTRIES_MAX 4096u
#define LOOK_NS	    100 /* what a look at the clock of a test takes */

enum kind { GONE, PLAIN, ADDRESSES, DOORBELL, PAGES, GROUP, CHANNEL, EVENT };

static struct object {
	enum kind kind;
	uint32_t client, parent, handle;
	/* channel */
	uint32_t engine, entries, get;
	uint64_t ring, userd;
	bool bound, scheduled;
	/* group: its last channel has gone */
	bool spent;
	/* event: a descriptor of our own to raise it by, and its notifier */
	int fd;
	uint32_t index;
	/* pages */
	uint64_t from, length;
	uint64_t at; /* for the GPU; 0: it has no way there */
} object[OBJECTS];

struct fake_nvrm fake_nvrm;
void (*fake_nvrm_unpin)(uint64_t from);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t next_client = 0xc1d00100;
static uint64_t next_at = PAGES_AT;
static uint64_t stamp; /* of the next fence; 0: the machine's time */
static enum kind to_map;
static pid_t running; /* the engine, in that process */

/* --- the engine ------------------------------------------------------------------------------- */

/* What a test sets while the engine runs. */
static bool told(const bool *setting)
{
	return __atomic_load_n(setting, __ATOMIC_RELAXED);
}

/* What lies at that address for the GPU; NULL: a fault. */
static void *seen_by_gpu(uint64_t at, uint64_t bytes)
{
	for (int i = 0; i < OBJECTS; i++)
		if (object[i].kind == PAGES && object[i].at && at >= object[i].at &&
		    at + bytes <= object[i].at + object[i].length)
			return (void *)(uintptr_t)(at - object[i].at + object[i].from);
	fake_nvrm.wild++;
	return NULL;
}

static void raise_all(uint32_t index)
{
	uint64_t one = 1;

	__atomic_add_fetch(&fake_nvrm.interrupts, 1, __ATOMIC_RELAXED);
	if (told(&fake_nvrm.no_interrupts))
		return;
	for (int i = 0; i < OBJECTS; i++)
		if (object[i].kind == EVENT && object[i].index == index &&
		    write(object[i].fd, &one, sizeof(one)) != sizeof(one) &&
		    /* one that is not read as yet stands for this one; or its process is dying */
		    errno != EAGAIN && errno != EPIPE && errno != ECONNRESET)
			fake_nvrm.wild++;
}

void fake_nvrm_interrupt(void)
{
	pthread_mutex_lock(&lock);
	for (uint32_t e = 0; e < 10; e++)
		raise_all(NV_NOTIFIER_CE0 + e);
	pthread_mutex_unlock(&lock);
}

struct fake_nvrm fake_nvrm_seen(void)
{
	struct fake_nvrm seen;

	pthread_mutex_lock(&lock);
	seen = fake_nvrm;
	pthread_mutex_unlock(&lock);
	return seen;
}

/* Carries out the methods of one place. false: an acquire is not met. */
static bool carry_out(struct object *c, const uint32_t *p, uint32_t words)
{
	for (uint32_t i = 0; i < words;) {
		uint32_t count = p[i] >> 16 & 0x1fff, method = (p[i] & 0xfff) << 2;
		const uint32_t *a = &p[i + 1];

		if (p[i] >> 29 != 1 || i + 1 + count > words) {
			fake_nvrm.wild++;
			return true;
		}
		if (method == NV_SEM_ADDR_LO && count == 5) {
			uint64_t at = a[0] | (uint64_t)a[1] << 32;
			volatile uint32_t *word = seen_by_gpu(at, 4);

			if (!word || at & 3) {
				fake_nvrm.wild++;
				return true;
			}
			if ((a[4] & 7) == NV_SEM_ACQUIRE_CIRCULAR) {
				if ((int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - a[2]) < 0) {
					__atomic_add_fetch(&fake_nvrm.held, 1, __ATOMIC_RELAXED);
					return false;
				}
			} else {
				volatile uint64_t *fence = seen_by_gpu(at, 16);

				if ((a[4] & 7) != NV_SEM_RELEASE || !fence || at & 15) {
					fake_nvrm.wild++;
					return true;
				}
				if (told(&fake_nvrm.hold_fences))
					return false;
				fence[1] = stamp ? stamp : rtxg_now_ns();
				__atomic_store_n(&fence[0], a[2] | (uint64_t)a[3] << 32,
						 __ATOMIC_RELEASE);
			}
		} else if (method == NV_NON_STALL_INTERRUPT && count == 1) {
			raise_all(NV_NOTIFIER_CE0 + c->engine - NV_ENGINE_TYPE_COPY0);
		} else {
			fake_nvrm.wild++;
		}
		i += 1 + count;
	}
	return true;
}

static void serve(struct object *c)
{
	volatile uint32_t *userd = seen_by_gpu(c->userd, 512);
	uint32_t put = __atomic_load_n(&userd[NV_USERD_GP_PUT / 4], __ATOMIC_ACQUIRE);

	if (told(&fake_nvrm.reads_ahead))
		__atomic_store_n(&userd[NV_USERD_GP_GET / 4], put, __ATOMIC_RELEASE);
	while (c->get != put % c->entries) {
		const uint32_t *entry = seen_by_gpu(c->ring + c->get * 8ull, 8);
		uint64_t at = entry[0] | (uint64_t)(entry[1] & 0xff) << 32;
		uint32_t words = entry[1] >> 10 & 0x1fffff;
		const uint32_t *methods = seen_by_gpu(at, words * 4ull);

		if (!methods || !carry_out(c, methods, words))
			return;
		c->get = (c->get + 1) % c->entries;
		if (!told(&fake_nvrm.reads_ahead))
			__atomic_store_n(&userd[NV_USERD_GP_GET / 4], c->get, __ATOMIC_RELEASE);
	}
}

static unsigned int passes; /* of the engine over all channels */

static void *engine(void *arg)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		for (int i = 0; i < OBJECTS && !told(&fake_nvrm.lost); i++)
			if (object[i].kind == CHANNEL && object[i].scheduled &&
			    (object[i].bound || !fake_nvrm.unbound_astray) &&
			    !(fake_nvrm.dead_engines >> (object[i].engine - NV_ENGINE_TYPE_COPY0) &
			      1))
				serve(&object[i]);
		pthread_mutex_unlock(&lock);
		__atomic_add_fetch(&passes, 1, __ATOMIC_RELEASE);
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	}
	return NULL;
}

/*
 * The library sleeps so often until it gives an engine up. This engine is a thread, which may wait
 * for a processor for longer than that: a sleep ends when it has looked once.
 */
int usleep(useconds_t us)
{
	unsigned int before = __atomic_load_n(&passes, __ATOMIC_ACQUIRE);

	do
		nanosleep(&(struct timespec){ .tv_sec = us / 1000000,
					      .tv_nsec = us % 1000000 * 1000 },
			  NULL);
	while (running == getpid() && __atomic_load_n(&passes, __ATOMIC_ACQUIRE) == before);
	return 0;
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&lock);
}

static void fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
}

void fake_nvrm_reset(void)
{
	pthread_t thread;

	if (!running)
		pthread_atfork(fork_prepare, fork_parent, fork_child);

	pthread_mutex_lock(&lock);
	memset(&fake_nvrm, 0, sizeof(fake_nvrm));
	for (int i = 0; i < OBJECTS; i++)
		if (object[i].kind == EVENT)
			close(object[i].fd);
	memset(object, 0, sizeof(object));
	fake_nvrm.gpus = 1;
	stamp = 0;
	pthread_mutex_unlock(&lock);
	if (running != getpid() && !pthread_create(&thread, NULL, engine, NULL))
		running = getpid();
}

pid_t fake_nvrm_fork_untold(void)
{
	pid_t child;
	int fds;

	pthread_mutex_lock(&lock);
	child = _Fork();
	fds = fake_nvrm.fds;
	pthread_mutex_unlock(&lock);
	if (!child) {
		fake_nvrm_reset();
		fake_nvrm.fds = fds;
	}
	return child;
}

/* --- the driver ------------------------------------------------------------------------------- */

static struct object *find(uint32_t client, uint32_t handle)
{
	for (int i = 0; i < OBJECTS; i++)
		if (object[i].kind != GONE && object[i].client == client &&
		    object[i].handle == handle)
			return &object[i];
	return NULL;
}

static struct object *add(uint32_t client, uint32_t parent, uint32_t handle, enum kind kind)
{
	for (int i = 0; i < OBJECTS; i++)
		if (object[i].kind == GONE) {
			object[i] = (struct object){ .kind = kind,
						     .client = client,
						     .parent = parent,
						     .handle = handle,
						     .fd = -1 };
			fake_nvrm.objects++;
			return &object[i];
		}
	abort();
}

static struct object *find(uint32_t client, uint32_t handle);

/*
 * As on the card: a group that has lost its last channel takes no other. The driver's firmware
 * lets go of a buffer of the group with the last channel, and takes it with the group alone.
 */
static void spend_group(uint32_t client, uint32_t handle)
{
	struct object *group = find(client, handle);

	for (int i = 0; i < OBJECTS; i++)
		if (object[i].kind == CHANNEL && object[i].client == client &&
		    object[i].parent == handle)
			return;
	if (group && group->kind == GROUP)
		group->spent = true;
}

static void drop(struct object *o)
{
	enum kind kind = o->kind;

	if (kind == GONE)
		return;
	if (kind == EVENT)
		close(o->fd);
	if (kind == PAGES && fake_nvrm_unpin)
		fake_nvrm_unpin(o->from);
	o->kind = GONE;
	fake_nvrm.objects--;
	if (kind == CHANNEL)
		spend_group(o->client, o->parent);
	for (int i = 0; i < OBJECTS; i++) /* and its children */
		if (object[i].kind != GONE && object[i].client == o->client &&
		    object[i].parent == o->handle)
			drop(&object[i]);
}

/*
 * The driver copies as many bytes as its own release has for that class, in and out, whatever the
 * caller's size says. What it gives back is not zero, as a driver's own numbers are not.
 */
static void give_back(const struct nvos64 *a, size_t theirs)
{
	uint8_t *p = (uint8_t *)(uintptr_t)a->params;

	for (size_t i = a->params_size; i < theirs; i++)
		p[i] = 0xd7;
}

/* The parameters of a channel as the oldest release has them. */
static struct nvrm_channel_alloc channel_of(const void *params)
{
	struct nvrm_channel_alloc a = *(const struct nvrm_channel_alloc *)params;
	const struct nvrm_channel_alloc_moved *moved = params;

	if (fake_nvrm.release < NV_CHANNEL_MOVED)
		return a;
	memcpy(a.userd, moved->userd, sizeof(a.userd));
	memcpy(a.userd_offset, moved->userd_offset, sizeof(a.userd_offset));
	a.engine = moved->engine;
	return a;
}

static uint32_t allocate(struct nvos64 *a)
{
	void *p = (void *)(uintptr_t)a->params;
	struct object *o;
	uint64_t at;

	if (a->class_id == fake_nvrm.refuse_class)
		return NV_STATUS_INVALID_CLASS;
	if (a->class_id == NV_CLASS_ROOT_CLIENT) {
		a->object = next_client++;
		fake_nvrm.clients++;
		return NV_STATUS_OK;
	}
	if (a->parent != a->root && !find(a->root, a->parent))
		return NV_STATUS_INVALID_OBJECT_HANDLE;
	if (find(a->root, a->object))
		return NV_STATUS_STATE_IN_USE;
	switch (a->class_id) {
	case NV_CLASS_CHANNEL_GROUP:
		o = add(a->root, a->parent, a->object, GROUP);
		o->engine = ((struct nvrm_group_alloc *)p)->engine;
		give_back(a, fake_nvrm.release >= 615 ? 28 : 20);
		return NV_STATUS_OK;
	case NV_CLASS_CHANNEL_AMPERE:
	case NV_CLASS_CHANNEL_HOPPER:
	case NV_CLASS_CHANNEL_BLACKWELL:
	case NV_CLASS_CHANNEL_BLACKWELL_B: {
		const struct nvrm_channel_alloc c = channel_of(p);
		const struct object *memory = find(a->root, c.userd[0]);

		if (a->class_id < fake_nvrm.oldest_class)
			return NV_STATUS_INVALID_CLASS;
		give_back(a, fake_nvrm.release >= NV_CHANNEL_MOVED ? 376 : 368);
		o = find(a->root, a->parent);
		/* one without a group has one of the driver's own */
		if ((o->kind == GROUP && o->engine != c.engine) ||
		    (o->kind != GROUP && !find(a->root, c.space)) || !c.entries ||
		    c.entries > ENTRIES_MAX || !memory || memory->kind != PAGES ||
		    c.userd_offset[0] % 512 || c.userd_offset[0] + 512 > memory->length)
			return NV_STATUS_INVALID_ARGUMENT;
		if (find(a->root, a->parent)->spent)
			return NV_STATUS_INVALID_STATE;
		at = memory->at;
		o = add(a->root, a->parent, a->object, CHANNEL);
		o->engine = c.engine;
		o->entries = c.entries;
		o->ring = c.ring;
		o->userd = at + c.userd_offset[0];
		return NV_STATUS_OK;
	}
	case NV_CLASS_OS_EVENT: {
		const struct nvrm_event_alloc *e = p;

		if (!(e->index & NV_EVENT_NONSTALL))
			return NV_STATUS_INVALID_ARGUMENT;
		o = add(a->root, a->parent, a->object, EVENT);
		o->fd = dup((int)e->fd);
		o->index = e->index & 0xffff;
		return NV_STATUS_OK;
	}
	case NV_CLASS_USERMODE_BLACKWELL:
	case NV_CLASS_USERMODE_HOPPER:
	case NV_CLASS_USERMODE_AMPERE:
	case NV_CLASS_USERMODE_TURING:
		if (a->class_id < fake_nvrm.oldest_doorbell)
			return NV_STATUS_INVALID_CLASS;
		add(a->root, a->parent, a->object, DOORBELL);
		return NV_STATUS_OK;
	case NV_CLASS_MEMORY_VIRTUAL:
		if (!find(a->root, ((struct nvrm_addresses_alloc *)p)->space))
			return NV_STATUS_INVALID_OBJECT_HANDLE;
		add(a->root, a->parent, a->object, ADDRESSES);
		return NV_STATUS_OK;
	case NV_CLASS_DEVICE:
	case NV_CLASS_SUBDEVICE:
	case NV_CLASS_VIRTUAL_SPACE:
		add(a->root, a->parent, a->object, PLAIN);
		return NV_STATUS_OK;
	default:
		return NV_STATUS_INVALID_CLASS;
	}
}

static uint32_t control(struct nvos54 *c)
{
	void *p = (void *)(uintptr_t)c->params;
	struct object *o = find(c->client, c->object);

	if (c->cmd == NV0000_GPU_GET_ID_INFO_V2) {
		((struct nv_id_info *)p)->device_instance = 0;
		return NV_STATUS_OK;
	}
	if (!o)
		return NV_STATUS_INVALID_OBJECT_HANDLE;
	switch (c->cmd) {
	case NV2080_GPU_GET_ID:
		return told(&fake_nvrm.lost) ? NV_STATUS_GPU_IS_LOST : NV_STATUS_OK;
	case NVA06F_BIND:
		o->bound = true;
		return NV_STATUS_OK;
	case NVA06C_GPFIFO_SCHEDULE:
		for (int i = 0; i < OBJECTS; i++)
			if (object[i].kind == CHANNEL && object[i].client == c->client &&
			    object[i].parent == c->object)
				object[i].scheduled = object[i].bound || !fake_nvrm.needs_bind;
		return NV_STATUS_OK;
	case NVA06F_GPFIFO_SCHEDULE:
		o->scheduled = true;
		return NV_STATUS_OK;
	case NVC36F_GET_WORK_SUBMIT_TOKEN:
		/* as on the card: not before it has a runlist */
		if (!o->scheduled)
			return NV_STATUS_INVALID_STATE;
		((struct nvrm_token *)p)->token =
			(fake_nvrm.runlist_0 >> (o->engine - NV_ENGINE_TYPE_COPY0) & 1 ? 0
										       : 1u << 16) |
			(uint32_t)(o - object);
		return NV_STATUS_OK;
	default:
		return NV_STATUS_NOT_SUPPORTED;
	}
}

static uint32_t give(struct nvrm_map_dma *m)
{
	struct object *o = find(m->client, m->memory);

	struct object *space = find(m->client, m->space);

	/* as on the card: a space itself is refused */
	if (!o || o->kind != PAGES || !space || space->kind != ADDRESSES)
		return NV_STATUS_INVALID_OBJECT_HANDLE;
	m->address = o->at = next_at;
	next_at += o->length + 4096; /* what lies behind it is not theirs */
	return NV_STATUS_OK;
}

/* Could the driver pin it, in order to write to it? */
static bool is_writable(uint64_t address)
{
	char byte;
	struct iovec here = { &byte, 1 }, there = { (void *)(uintptr_t)address, 1 };

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 &&
	       process_vm_writev(getpid(), &here, 1, &there, 1, 0) == 1;
}

static uint32_t import(struct nvrm_memory_of_process *m)
{
	struct object *o;

	if (m->address & 4095 || (m->limit + 1) & 4095)
		return NV_STATUS_INVALID_ARGUMENT;
	if (m->address == ((uintptr_t)fake_nvrm.unmappable & ~4095ull) && m->address)
		return NV_STATUS_INVALID_LIMIT;
	if (!find(m->root, m->parent))
		return NV_STATUS_INVALID_OBJECT_HANDLE;
	if (!is_writable(m->address))
		return NV_STATUS_INVALID_ADDRESS;
	o = add(m->root, m->parent, m->object, PAGES);
	o->from = m->address;
	o->length = m->limit + 1;
	return NV_STATUS_OK;
}

static void forget_client(uint32_t client)
{
	for (int i = 0; i < OBJECTS; i++)
		if (object[i].client == client)
			drop(&object[i]);
	fake_nvrm.clients--;
}

static void name_cards(struct nv_card_info *card)
{
	for (uint32_t i = 0; i < fake_nvrm.gpus; i++)
		card[i] = (struct nv_card_info){ .valid = 1,
						 .bus = (uint8_t)(0x40 - i),
						 .slot = 1,
						 .gpu_id = 0x4000 + i,
						 .minor = i };
}

/* The driver's answer; the caller holds the lock. */
static uint32_t answer(uint32_t request, void *arg, uint32_t **status)
{
	if (request == RM_IOC(NV_ESC_RM_ALLOC, struct nvos64)) {
		*status = &((struct nvos64 *)arg)->status;
		return allocate(arg);
	}
	if (request == RM_IOC(NV_ESC_RM_CONTROL, struct nvos54)) {
		*status = &((struct nvos54 *)arg)->status;
		return control(arg);
	}
	if (request == RM_IOC(NV_ESC_RM_MAP_MEMORY, struct nvos33_fd)) {
		struct nvos33_fd *m = arg;
		struct object *o = find(m->client, m->memory);

		*status = &m->status;
		to_map = o ? o->kind : GONE;
		return o ? NV_STATUS_OK : NV_STATUS_INVALID_OBJECT_HANDLE;
	}
	if (request == RM_IOC(NV_ESC_RM_MAP_DMA, struct nvrm_map_dma)) {
		*status = &((struct nvrm_map_dma *)arg)->status;
		return give(arg);
	}
	if (request == RM_IOC(NV_ESC_RM_ALLOC_MEMORY, struct nvrm_memory_of_process)) {
		*status = &((struct nvrm_memory_of_process *)arg)->status;
		return import(arg);
	}
	if (request == RM_IOC(NV_ESC_ALLOC_OS_EVENT, struct nvrm_os_event)) {
		*status = &((struct nvrm_os_event *)arg)->status;
		return NV_STATUS_OK;
	}
	abort();
}

static bool is_channel(uint32_t request, const void *arg)
{
	uint32_t class_id = ((const struct nvos64 *)arg)->class_id;

	return request == RM_IOC(NV_ESC_RM_ALLOC, struct nvos64) &&
	       (class_id == NV_CLASS_CHANNEL_AMPERE || class_id == NV_CLASS_CHANNEL_HOPPER);
}

static int fake_ioctl(void *ctx, int fd, uint32_t request, void *arg)
{
	uint32_t *status = NULL, refused = NV_STATUS_OK;
	int error = 0;

	if (request == RM_IOC(NV_ESC_REGISTER_FD, struct nv_register_fd))
		return 0;
	/* as the driver's files of such a GPU, not its control file */
	if (told(&fake_nvrm.lost) &&
	    (request == RM_IOC(NV_ESC_RM_ALLOC_MEMORY, struct nvrm_memory_of_process) ||
	     request == RM_IOC(NV_ESC_ALLOC_OS_EVENT, struct nvrm_os_event)))
		return -EINVAL;
	pthread_mutex_lock(&lock);
	if (request == RM_IOC(NV_ESC_CARD_INFO, struct nv_card_info[RM_GPUS_MAX])) {
		name_cards(arg);
	} else if (request == RM_IOC(NV_ESC_CHECK_VERSION, struct nv_version)) {
		snprintf(((struct nv_version *)arg)->text, 64, "%u.71.09", fake_nvrm.release);
	} else if (request == RM_IOC(NV_ESC_RM_FREE, struct nvos00)) {
		struct nvos00 *f = arg;
		struct object *o = find(f->root, f->object);

		if (o)
			drop(o);
		else if (f->object == f->root)
			forget_client(f->root);
		else
			fake_nvrm.wild++; /* freed twice, or never there */
		f->status = NV_STATUS_OK;
	} else {
		uint32_t saved = fake_nvrm.refuse_class;

		fake_nvrm.calls++;
		if (fake_nvrm.calls == fake_nvrm.fail_call) {
			refused = fake_nvrm.fail_status;
			error = fake_nvrm.fail_errno;
			fake_nvrm.refuse_class = UINT32_MAX;
		}
		if (error) {
			; /* the driver has not seen it */
		} else if (refused) {
			/* only where its status stands is wanted: nothing is carried out */
			struct fake_nvrm before = fake_nvrm;
			static struct object kept[OBJECTS];

			memcpy(kept, object, sizeof(kept));
			answer(request, arg, &status);
			memcpy(object, kept, sizeof(kept));
			fake_nvrm = before;
			*status = refused;
			if (is_channel(request, arg)) /* it has been in the group, and gone */
				spend_group(((struct nvos64 *)arg)->root,
					    ((struct nvos64 *)arg)->parent);
		} else {
			uint32_t s = answer(request, arg, &status);

			*status = s;
		}
		fake_nvrm.refuse_class = saved;
	}
	pthread_mutex_unlock(&lock);
	return -error;
}

static int fake_open(void *ctx, const char *path)
{
	unsigned int minor;
	int fd;

	pthread_testcancel(); /* as in open() */
	if (fake_nvrm.open_error)
		return -fake_nvrm.open_error;
	if (fake_nvrm.denied && !strcmp(path, fake_nvrm.denied))
		return -EACCES;
	if (strcmp(path, "/dev/nvidiactl") &&
	    (sscanf(path, "/dev/nvidia%u", &minor) != 1 || minor >= fake_nvrm.gpus))
		return -ENOENT;
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	__atomic_fetch_add(&fake_nvrm.fds, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&fake_nvrm.opens, 1, __ATOMIC_SEQ_CST);
	return fd;
}

static int fake_close(void *ctx, int fd)
{
	pthread_testcancel();
	__atomic_fetch_sub(&fake_nvrm.fds, 1, __ATOMIC_SEQ_CST);
	return close(fd) ? -errno : 0;
}

static int fake_map(void *ctx, int fd, size_t length, void **address)
{
	if (to_map != DOORBELL) {
		fake_nvrm.wild++;
		return -EINVAL;
	}
	*address = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (*address == MAP_FAILED)
		return -ENOMEM;
	fake_nvrm.maps++;
	return 0;
}

static int fake_munmap(void *ctx, void *address, size_t length)
{
	fake_nvrm.maps--;
	return munmap(address, length) ? -errno : 0;
}

/* The clock has come so far. */
static void pass_to(uint64_t now)
{
	fake_nvrm.clock = now;
	if (!fake_nvrm.end_at || now < fake_nvrm.end_at)
		return;
	pthread_mutex_lock(&lock);
	stamp = fake_nvrm.end_at + fake_nvrm.apart;
	pthread_mutex_unlock(&lock);
	fake_nvrm.end_at = 0;
	__atomic_store_n(fake_nvrm.word, fake_nvrm.value, __ATOMIC_RELEASE);
}

static uint64_t fake_now(void *ctx)
{
	if (!fake_nvrm.clock)
		return rtxg_now_ns();
	pass_to(fake_nvrm.clock + LOOK_NS);
	return fake_nvrm.clock;
}

/* On the clock of the test. The interrupt is a real one, of the engine's thread. */
static int sleep_on_clock(void *ctx, int fd, uint64_t timeout_ns)
{
	uint64_t timer = fake_nvrm.clock + timeout_ns + fake_nvrm.timer_late;
	uint64_t interrupt = fake_nvrm.end_at + fake_nvrm.interrupt_late;
	int ret;

	if (fake_nvrm.awake_at) {
		uint64_t awake = fake_nvrm.clock - fake_nvrm.awake_at;

		fake_nvrm.busy += awake;
		if (awake > fake_nvrm.awake)
			fake_nvrm.awake = awake;
	}
	if (fd < 0 || !fake_nvrm.end_at || timer < interrupt) {
		/* what came before the sleep ends it at once */
		ret = nv_sys_linux.poll(ctx, fd, 0);
		if (!ret)
			pass_to(timer);
	} else {
		pass_to(interrupt);
		ret = nv_sys_linux.poll(ctx, fd, 10 * 1000000000ull);
	}
	fake_nvrm.awake_at = fake_nvrm.clock;
	return ret;
}

/* As the driver: poll() takes the event. */
/* One more sleeps, or one less: then it has slept. */
static void count_sleep(int more)
{
	__atomic_add_fetch(&fake_nvrm.asleep, more, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&fake_nvrm.sleeps, more < 0, __ATOMIC_RELAXED);
}

static int fake_poll(void *ctx, int fd, uint64_t timeout_ns)
{
	bool lost = told(&fake_nvrm.lost) && fd >= 0;
	uint64_t count;
	int ret;

	count_sleep(1);
	while (told(&fake_nvrm.hold_sleeps))
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	ret = lost		? -ENODEV
	      : fake_nvrm.clock ? sleep_on_clock(ctx, fd, timeout_ns)
				: nv_sys_linux.poll(ctx, fd, timeout_ns);
	count_sleep(-1);
	if (ret > 0 && read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		fake_nvrm.wild++;
	return ret;
}

const struct nv_sys fake_nvrm_sys = {
	.open = fake_open,
	.close = fake_close,
	.ioctl = fake_ioctl,
	.mmap_writable = fake_map,
	.munmap = fake_munmap,
	.poll = fake_poll,
	.now_ns = fake_now,
};
