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

#include "flips.h"
#include "rtxg_core.h"
#include "virtgpu.h"

static const char *missing;

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
	struct virtgpu_create create = {
		.target = 2, .format = 2, .width = 64, .height = 64, .depth = 1, .array_size = 1
	};
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	int err = rtx_gpu_launch(handle, RTX_COMPUTE) ?: call(render, VIRTGPU_CREATE, &create);
	struct virtgpu_wait wait = { .handle = create.handle };

	if (err)
		return err;
	fflush(NULL);
	if (!fork()) {
		err = call(render, VIRTGPU_WAIT, &wait);
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
	if (!load_virtio_gpu())
		missing = "this kernel has no virtio-gpu";
	return RUN(cases);
}
