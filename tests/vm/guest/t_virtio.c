// SPDX-License-Identifier: MIT
/*
 * t_virtio.c - the interrupt of a stock driver gives permits, with a real client as its load:
 * Debian's virtio-gpu, and a program that shows two dumb buffers in turn, as every compositor does
 * (DRM, KMS).
 *
 * The device has no word of its own that says what has completed. So the holder's fence is written
 * by a process that waits in the driver for the holder's work, and the next interrupt finds it
 * passed.
 */
#include "gpu.h"

#include "rtxg_core.h"

/*
 * The part of drm/drm.h, drm_mode.h and virtgpu_drm.h that is used here; libc does not bring them.
 */
struct resources {
	uint64_t fbs, crtcs, connectors, encoders;
	uint32_t count_fbs, count_crtcs, count_connectors, count_encoders;
	uint32_t min_width, max_width, min_height, max_height;
};
struct mode {
	uint32_t clock;
	uint16_t hdisplay, horizontal[4], vdisplay, vertical[4];
	uint32_t refresh, flags, type;
	char name[32];
};
struct connector {
	uint64_t encoders, modes, props, values;
	uint32_t count_modes, count_props, count_encoders;
	uint32_t encoder, id, type, type_id, connection, mm_width, mm_height, subpixel, pad;
};
struct crtc {
	uint64_t connectors;
	uint32_t count_connectors, id, fb, x, y, gamma_size, mode_valid;
	struct mode mode;
};
struct dumb {
	uint32_t height, width, bpp, flags, handle, pitch;
	uint64_t size;
};
struct framebuffer {
	uint32_t id, width, height, pitch, bpp, depth, handle;
};
struct flip {
	uint32_t crtc, fb, flags, reserved;
	uint64_t data;
};
struct resource_create {
	uint32_t target, format, bind, width, height, depth, array_size, last_level, nr_samples,
		flags;
	uint32_t handle, resource, size, stride;
};
struct wait {
	uint32_t handle, flags;
};
#define IOCTL_RESOURCES _IOWR('d', 0xA0, struct resources)
#define IOCTL_SET_CRTC	_IOWR('d', 0xA2, struct crtc)
#define IOCTL_CONNECTOR _IOWR('d', 0xA7, struct connector)
#define IOCTL_ADD_FB	_IOWR('d', 0xAE, struct framebuffer)
#define IOCTL_FLIP	_IOWR('d', 0xB0, struct flip)
#define IOCTL_DUMB	_IOWR('d', 0xB2, struct dumb)
#define IOCTL_CREATE	_IOWR('d', 0x44, struct resource_create)
#define IOCTL_WAIT	_IOWR('d', 0x48, struct wait)
#define FLIP_EVENT	1

static const char *missing;

/* A buffer of the screen's size; the framebuffer's number, or 0. */
static uint32_t add_buffer(int card, const struct mode *mode)
{
	struct dumb dumb = { .height = mode->vdisplay, .width = mode->hdisplay, .bpp = 32 };
	struct framebuffer fb = {
		.height = mode->vdisplay, .width = mode->hdisplay, .bpp = 32, .depth = 24
	};

	if (call(card, IOCTL_DUMB, &dumb))
		return 0;
	fb.handle = dumb.handle;
	fb.pitch = dumb.pitch;
	return call(card, IOCTL_ADD_FB, &fb) ? 0 : fb.id;
}

/* Shows two buffers in turn for ever. Writes a byte for each that is shown. */
static void show(int told)
{
	int card = open("/dev/dri/card0", O_RDWR | O_CLOEXEC);
	uint32_t crtcs[8], connectors[8], fbs[2];
	struct resources all = { .crtcs = (uintptr_t)crtcs,
				 .connectors = (uintptr_t)connectors,
				 .count_crtcs = 8,
				 .count_connectors = 8 };
	struct mode modes[64];
	struct connector screen = { .modes = (uintptr_t)modes, .count_modes = 64 }, look = {};
	struct crtc crtc = { .connectors = (uintptr_t)connectors,
			     .count_connectors = 1,
			     .mode_valid = 1 };
	char event[256];

	if (card < 0 || call(card, IOCTL_RESOURCES, &all) || !all.count_connectors)
		_exit(1);
	screen.id = look.id = connectors[0];
	/* without room for modes, the driver looks which there are */
	if (call(card, IOCTL_CONNECTOR, &look) || call(card, IOCTL_CONNECTOR, &screen) ||
	    !screen.count_modes)
		_exit(2);
	for (int i = 0; i < 2; i++)
		fbs[i] = add_buffer(card, &modes[0]);
	crtc.id = crtcs[0];
	crtc.fb = fbs[0];
	crtc.mode = modes[0];
	if (!fbs[0] || !fbs[1] || call(card, IOCTL_SET_CRTC, &crtc))
		_exit(3);
	for (unsigned int i = 1;; i++) {
		struct flip flip = { .crtc = crtcs[0], .fb = fbs[i % 2], .flags = FLIP_EVENT };

		if (call(card, IOCTL_FLIP, &flip) || read(card, event, sizeof(event)) <= 0 ||
		    write(told, "f", 1) != 1)
			_exit(4);
	}
}

struct client {
	pid_t pid;
	int shown;
};

static struct client begin_client(void)
{
	struct client client;
	int pipes[2];

	check(!pipe(pipes), "pipe");
	fflush(NULL);
	client.pid = fork();
	if (!client.pid) {
		close(pipes[0]);
		show(pipes[1]);
	}
	close(pipes[1]);
	client.shown = pipes[0];
	return client;
}

/* It has shown one more buffer. One that has ended shows none any more. */
static void await_flip(struct client *client)
{
	char byte;
	int status = 0;

	if (client->shown < 0 || read(client->shown, &byte, 1) == 1)
		return;
	waitpid(client->pid, &status, 0);
	check(false, "the client ended with %x", status);
	close(client->shown);
	client->shown = -1;
}

static void end_client(const struct client *client)
{
	if (client->shown < 0)
		return;
	kill(client->pid, SIGKILL);
	waitpid(client->pid, NULL, 0);
	close(client->shown);
}

/* The interrupt of the GPU's driver: virtioN-control in /proc/interrupts where N is the GPU's. */
static bool name_interrupt(char *name, size_t size)
{
	for (int i = 0; i < 32; i++) {
		char path[64], target[256];
		ssize_t n;

		snprintf(path, sizeof(path), "/sys/bus/virtio/devices/virtio%d/driver", i);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = 0;
		if (strstr(target, "virtio_gpu")) {
			snprintf(name, size, "virtio%d-control", i);
			return true;
		}
	}
	return false;
}

/*
 * The driver's interrupt is a completion of GPU 0's engine from now on, until the file is closed.
 */
static struct rtxg_irq_attach bind_interrupt(int fd)
{
	struct rtxg_irq_attach attach = { .size = sizeof(attach),
					  .flags = RTXG_IRQ_F_BY_NAME | RTXG_IRQ_F_AFTER };
	struct rtxg_irq_bind bind = { .size = sizeof(bind), .gpu = "0", .engine = RTX_COMPUTE };
	char name[sizeof(attach.name)];
	int err;

	check(name_interrupt(name, sizeof(name)), "no virtio-gpu");
	memcpy(attach.name, name, sizeof(attach.name));
	err = call(fd, RTXG_IOC_IRQ_ATTACH, &attach);
	bind.id = attach.id;
	err = err ?: call(fd, RTXG_IOC_IRQ_BIND, &bind);
	check(!err, "bind %s: %d", name, err);
	return attach;
}

/* What two processes share: the fence, and whether it may be written. */
struct shared {
	uint32_t fence, end;
};

/* Work for the device, and a process that waits for it in the driver and then writes the fence. */
static int work_with_fence(rtx_gpu_t handle, int render, struct shared *shared)
{
	struct resource_create create = {
		.target = 2, .format = 2, .width = 64, .height = 64, .depth = 1, .array_size = 1
	};
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	int err = rtx_gpu_launch(handle, RTX_COMPUTE) ?: call(render, IOCTL_CREATE, &create);
	struct wait wait = { .handle = create.handle };

	if (err)
		return err;
	fflush(NULL);
	if (!fork()) {
		err = call(render, IOCTL_WAIT, &wait);
		while (!__atomic_load_n(&shared->end, __ATOMIC_SEQ_CST))
			sleep_ns(MS);
		__atomic_store_n(&shared->fence, !err, __ATOMIC_SEQ_CST);
		_exit(0);
	}
	how.how = RTX_SYNC_FENCE;
	how.word = &shared->fence;
	how.value = 1;
	return rtx_gpu_notify(handle, RTX_COMPUTE, &how);
}

struct contender {
	rtx_gpu_t handle;
	pthread_t thread;
	bool done;
	int err;
};

static void *contend(void *argument)
{
	struct contender *c = argument;

	c->err = rtx_gpu_launch(c->handle, RTX_COMPUTE);
	__atomic_store_n(&c->done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* It waits for the engine when this returns. */
static void begin_contender(struct contender *c)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtxg_host_stats stats;

	options.vgpu = "b";
	check(!rtx_gpu_open(&c->handle, &options), "open: %s", rtx_strerror());
	pthread_create(&c->thread, NULL, contend, c);
	do
		check(!vgpu_stats("b", &stats), "stats");
	while (stats.waiting != 1 && !__atomic_load_n(&c->done, __ATOMIC_SEQ_CST) &&
	       (sleep_ns(MS), true));
}

/* A process that launches work on the device and then does not run. */
static pid_t begin_holder(struct shared *shared)
{
	int status = 0;
	pid_t holder;

	fflush(NULL);
	holder = fork();
	if (!holder) {
		int render = open("/dev/dri/renderD128", O_RDWR | O_CLOEXEC);
		struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
		rtx_gpu_t handle;

		options.vgpu = "a";
		if (rtx_gpu_open(&handle, &options) || work_with_fence(handle, render, shared))
			_exit(1);
		raise(SIGSTOP);
		_exit(rtx_gpu_sync(handle, RTX_COMPUTE) ? 2 : 0);
	}
	waitpid(holder, &status, WUNTRACED);
	check(WIFSTOPPED(status), "the holder does not stop: %x", status);
	return holder;
}

/*
 * The holder's work is done, and it does not run: the client's next interrupt gives the next
 * permit.
 */
static void test_flips_give_the_next_permit(void)
{
	struct shared *shared =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct rtxg_irq_stats seen = { .size = sizeof(seen) };
	int fd = open_rtxg(), status = -1;
	struct rtxg_host_stats stats;
	struct contender next = {};
	struct client client;
	pid_t holder;

	if (missing)
		skip(missing);
	check(make_patient_gpu("0", RTXG_GPU_FIFO) >= 0 && !make_vgpu("a", 0) && !make_vgpu("b", 0),
	      "objects");
	client = begin_client();
	holder = begin_holder(shared);
	begin_contender(&next);
	__atomic_store_n(&shared->end, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&shared->fence, __ATOMIC_SEQ_CST))
		sleep_ns(MS);
	/* interrupts come, and say nothing about this GPU yet */
	for (int i = 0; i < 10; i++)
		await_flip(&client);
	check(!__atomic_load_n(&next.done, __ATOMIC_SEQ_CST), "it waits for no interrupt");
	seen.id = bind_interrupt(fd).id;
	while (!__atomic_load_n(&next.done, __ATOMIC_SEQ_CST) && client.shown >= 0)
		await_flip(&client);
	pthread_join(next.thread, NULL);
	check(!next.err, "the next task got no permit: %d", next.err);
	check(!call(fd, RTXG_IOC_IRQ_STATS, &seen) && seen.entries, "no interrupt was seen");
	check(!vgpu_stats("a", &stats) && !stats.stats.expelled && stats.stats.completions == 1,
	      "the holder was expelled %" PRIu64 " times, completed %" PRIu64,
	      (uint64_t)stats.stats.expelled, (uint64_t)stats.stats.completions);
	rtx_gpu_sync(next.handle, RTX_COMPUTE);
	rtx_gpu_close(next.handle);
	close(fd);
	/* without the module's handler the client goes on as before */
	for (int i = 0; i < 10; i++)
		await_flip(&client);
	end_client(&client);
	kill(holder, SIGCONT);
	waitpid(holder, &status, 0);
	check(!status, "the holder cannot go on: %x", status);
	check(!remove_vgpu("a") && !remove_vgpu("b"), "remove");
	munmap(shared, 4096);
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "flips_give_the_next_permit", test_flips_give_the_next_permit },
	};

	load_module();
	/* t_bpf may have loaded it */
	if (access("/dev/dri/card0", F_OK) &&
	    shell("while read -r m; do o=; [ $m != drm_kms_helper.ko ] || "
		  "o=fbdev_emulation=0; insmod /modules/$m $o || exit 1; done "
		  "</modules/order.gpu"))
		missing = "this kernel has no virtio-gpu";
	return RUN(cases);
}
