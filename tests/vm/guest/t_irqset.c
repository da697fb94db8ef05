// SPDX-License-Identifier: MIT
/*
 * t_irqset.c - rtxg-irq -M: a device's interrupts given to a GPU by its map, on the command line.
 */
#include "gpu.h"

#include "rtxg_core.h"

#include <sys/stat.h>

#define PROGRAM "/tests/w_rtxg_irq"
#define OUTPUT	"/tmp/irqset"

static const char *missing;

static int priority_of_thread(const char *part)
{
	char path[64], line[64];

	for (pid_t pid = 2; pid < 5000; pid++) {
		struct sched_param param;

		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		if (read_text(path, line, sizeof(line)) && !strncmp(line, "irq/", 4) &&
		    strstr(line, part) && !sched_getparam(pid, &param))
			return param.sched_priority;
	}
	return -1;
}

static pid_t start(const char *arguments)
{
	char command[256];
	struct stat file;

	unlink(OUTPUT);
	snprintf(command, sizeof(command), "exec " PROGRAM " -d 0 -J %s >" OUTPUT, arguments);
	fflush(NULL);
	pid_t child = fork();

	if (!child) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	/* what it has taken is the first that it says */
	for (int i = 0; i < 60000 && (stat(OUTPUT, &file) || file.st_size < 4); i++) {
		if (waitpid(child, NULL, WNOHANG) == child) {
			check(false, "%s ended at once", arguments);
			return -1;
		}
		sleep_ns(MS);
	}
	return child;
}

static void end(pid_t child)
{
	int status = -1;

	kill(child, SIGTERM);
	waitpid(child, &status, 0);
	check(!status, "it ended with %x", status);
}

/*
 * The next task starts while the holder is stopped, and the threads are at the holder's priority.
 */
static void test_engine_of_a_map(void)
{
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	uint32_t form = RTXG_EDU_F_THREADED;
	struct sched_param param = { .sched_priority = 33 };
	struct rtxg_host_stats stats;
	int edu = open_edu(0);
	volatile uint64_t *fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, edu, 0);
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	rtx_gpu_t holder, next;
	char text[8192];
	pid_t child;
	int err;

	if (missing)
		skip(missing);
	check(!call(edu, RTXG_EDU_REQUEST, &form), "form");
	check(make_gpu("0", RTXG_GPU_FIFO) >= 0 && !make_vgpu("a", 0) && !make_vgpu("b", 0),
	      "objects");
	child = start("-M edu -g 0 -o owner:7 -t -s 1000/100000");
	check(priority_of_thread("rtxg_edu0") == 7, "threads at %d without an owner",
	      priority_of_thread("rtxg_edu0"));
	options.vgpu = "a";
	check(!rtx_gpu_open(&holder, &options), "open");
	options.vgpu = "b";
	check(!rtx_gpu_open(&next, &options), "open");
	check(!pthread_setschedparam(pthread_self(), SCHED_FIFO, &param), "FIFO 33");
	/* this thread holds the engine, and syncs only when the other has launched */
	check(!rtx_gpu_launch(holder, RTX_COMPUTE), "launch");
	how.how = RTX_SYNC_FENCE;
	how.word = (volatile uint32_t *)fence;
	how.value = (uint32_t)edu_launch(edu, 20 * MS);
	check(!rtx_gpu_notify(holder, RTX_COMPUTE, &how), "notify");
	for (int i = 0; i < 60000 && priority_of_thread("rtxg_edu0") != 33; i++)
		sleep_ns(MS);
	check(priority_of_thread("rtxg_edu0") == 33, "threads at %d instead of their owner's 33",
	      priority_of_thread("rtxg_edu0"));
	err = rtx_gpu_launch_until(next, RTX_COMPUTE, rtxg_now_ns() + 60000 * MS);
	check(!err, "the next: %d", err);
	check(!vgpu_stats("a", &stats) && !stats.stats.expelled, "the holder was expelled");
	rtx_gpu_sync(next, RTX_COMPUTE);
	rtx_gpu_sync(holder, RTX_COMPUTE);
	param.sched_priority = 0;
	pthread_setschedparam(pthread_self(), SCHED_OTHER, &param);
	end(child);
	check(priority_of_thread("rtxg_edu0") >= 49, "threads are left at %d",
	      priority_of_thread("rtxg_edu0"));
	check(!shell("cat " OUTPUT " >/tmp/one; tr -d '\\n' </tmp/one >" OUTPUT) &&
		      read_text(OUTPUT, text, sizeof(text)) &&
		      strstr(text, "\"engine\": \"compute\"") &&
		      strstr(text, "\"mode\": \"owner\"") && strstr(text, "\"tasklets\": ") &&
		      !strstr(text, "\"tasklets\": 0"),
	      "said %s", text);
	rtx_gpu_close(holder);
	rtx_gpu_close(next);
	munmap((void *)fence, 4096);
	form = RTXG_EDU_F_TOP;
	check(!call(edu, RTXG_EDU_REQUEST, &form), "form");
	close(edu);
	check(!remove_vgpu("a") && !remove_vgpu("b"), "remove");
}

/*
 * One interrupt, two engines: a copy's end gives the next permit of its own engine, while the
 * compute engine's holder goes on.
 */
static void test_two_engines_of_a_map(void)
{
	struct rtx_gpu_notify how = RTX_INIT(struct rtx_gpu_notify);
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	struct rtxg_host_stats stats;
	int edu = open_edu(0), err;
	volatile uint64_t *fence = mmap(NULL, 4096, PROT_READ, MAP_SHARED, edu, 0);
	rtx_gpu_t holder, next;
	uint64_t copy, kernel;
	pid_t child;

	if (missing)
		skip(missing);
	check(make_patient_gpu("0", RTXG_GPU_FIFO) >= 0 && !make_vgpu("a", 0) && !make_vgpu("b", 0),
	      "objects");
	child = start("-M edu -g 0");
	options.vgpu = "a";
	check(!rtx_gpu_open(&holder, &options), "open");
	options.vgpu = "b";
	check(!rtx_gpu_open(&next, &options), "open");
	/* a kernel that does not end by itself, and a copy; this thread syncs neither yet */
	check(!rtx_gpu_launch(holder, RTX_COMPUTE), "launch");
	kernel = edu_launch(edu, 0);
	how.how = RTX_SYNC_FENCE;
	how.word = (volatile uint32_t *)fence;
	how.value = (uint32_t)kernel;
	check(!rtx_gpu_notify(holder, RTX_COMPUTE, &how), "notify");
	check(!rtx_gpu_launch(holder, RTX_COPY_IN), "launch a copy");
	err = call(edu, RTXG_EDU_COPY, &copy);
	check(!err, "copy: %d", err);
	how.word = (volatile uint32_t *)&fence[1];
	how.value = (uint32_t)copy;
	check(!rtx_gpu_notify(holder, RTX_COPY_IN, &how), "notify of the copy");
	err = rtx_gpu_launch_until(next, RTX_COPY_IN, rtxg_now_ns() + 60000 * MS);
	check(!err && fence[1] == copy, "the next copy: %d", err);
	check(fence[0] != kernel, "the kernel ended by itself");
	/* the kernel's engine has a holder all the same */
	err = rtx_gpu_launch_until(next, RTX_COMPUTE, rtxg_now_ns() + 50 * MS);
	check(err == -ETIMEDOUT, "the next kernel beside one that runs: %d", err);
	check(!ioctl(edu, RTXG_EDU_END), "end");
	err = rtx_gpu_launch_until(next, RTX_COMPUTE, rtxg_now_ns() + 60000 * MS);
	check(!err && fence[0] == kernel, "the next kernel: %d", err);
	check(!vgpu_stats("a", &stats) && !stats.stats.expelled, "the holder was expelled");
	rtx_gpu_sync(next, RTX_COMPUTE);
	rtx_gpu_sync(next, RTX_COPY_IN);
	check(!rtx_gpu_sync(holder, RTX_COMPUTE) && !rtx_gpu_sync(holder, RTX_COPY_IN), "sync");
	rtx_gpu_close(holder);
	rtx_gpu_close(next);
	end(child);
	munmap((void *)fence, 4096);
	close(edu);
	check(!remove_vgpu("a") && !remove_vgpu("b"), "remove");
}

/* The other maps that are installed find their devices here. */
static void test_maps_of_stock_devices(void)
{
	if (missing)
		skip(missing);
	check(!shell(PROGRAM " -d 0.1 -M nvme >/tmp/out && grep -q nvme0q1 /tmp/out"), "nvme");
	/* another program of the suite loads its driver */
	if (!shell("grep -q control /proc/interrupts"))
		check(!shell(PROGRAM
			     " -d 0.1 -M virtio-gpu -g 0 >/tmp/out && grep -q control /tmp/out"),
		      "virtio-gpu");
}

static void test_refusals(void)
{
	static const struct {
		const char *arguments, *says;
		int status;
	} wrong[] = {
		{ "-M nothing", "No such file", 1 },
		{ "-M /tmp/map1", "\"pci\"", 1 },
		{ "-M /tmp/map2", "bar, offset, width and mask", 1 },
		{ "-M /tmp/map3", "no interrupt of this machine", 1 },
		{ "-M /tmp/map4", "Numerical result", 1 },
		{ "-M edu -o 98", "N from 1 to 97", 2 },
		{ "-M edu -o owner:", "owner:N", 2 },
		{ "-M edu -p 0", "number of a thread", 2 },
		{ "-M edu -b", "go with -o owner", 2 },
		{ "-M edu -s 1/100", "go with -o owner", 2 },
		{ "-M edu -o owner -s 2/1", "RUNTIME/PERIOD", 2 },
		{ "-M edu -t", "goes with a priority", 2 },
		{ "-i -m", "go with -i", 2 },
		{ "-g 0", "go with -M", 2 },
		{ "-M edu -m", "no -m", 2 },
	};

	if (missing)
		skip(missing);
	check(!shell("echo '{}' >/tmp/map1; "
		     "echo '{\"pci\":[\"1234:11e8\"],\"interrupt\":\"rtxg_edu\",\"sources\":"
		     "{\"a\":{\"register\":{\"bar\":0}}}}' >/tmp/map2; "
		     "echo '{\"pci\":[\"ffff:ffff\"],\"interrupt\":\"x\",\"sources\":{\"a\":{}}}' "
		     ">/tmp/map3; "
		     "echo '{\"pci\":[\"1234:11e8\"],\"interrupt\":\"rtxg_edu\",\"sources\":"
		     "{\"a\":{\"register\":{\"bar\":0,\"offset\":\"0x7fffffff0\",\"width\":4,"
		     "\"mask\":1}}}}' >/tmp/map4"),
	      "maps");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char command[256];
		int status;

		snprintf(command, sizeof(command), PROGRAM " -d 0 %s >/dev/null 2>/tmp/said",
			 wrong[i].arguments);
		status = shell(command);
		snprintf(command, sizeof(command), "grep -qF -- '%s' /tmp/said", wrong[i].says);
		check(status == wrong[i].status && !shell(command), "%s: %d", wrong[i].arguments,
		      status);
	}
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "the module is held");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "engine_of_a_map", test_engine_of_a_map },
		{ "two_engines_of_a_map", test_two_engines_of_a_map },
		{ "maps_of_stock_devices", test_maps_of_stock_devices },
		{ "refusals", test_refusals },
	};

	load_module();
	setenv("RTXG_IRQ_MAPS", "/tests/maps", 1);
	if (access(PROGRAM, X_OK))
		missing = "rtxg-irq was not built (make)";
	return RUN(cases);
}
