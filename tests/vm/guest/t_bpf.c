// SPDX-License-Identifier: MIT
/*
 * t_bpf.c - rtxg-irq in a kernel with real users of fences. The tests ask three questions. Does
 * rtxg-irq attribute a dma_fence to the interrupt that led to it, and to no other? Does it measure
 * the wake-up of the task that slept for the fence? Do BPF and the module give the same figures for
 * the same interrupt? The fences are those of Debian's virtio-gpu driver: its interrupt wakes a
 * worker, and the worker signals the fences. The tests read rtxg-irq's JSON, as programs do.
 */
#include "rtxg_vm.h"
#include "virtgpu.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define PROGRAM "/tests/w_rtxg_irq"
/* programs without which rtxg-irq shows nothing; it attaches those of fences before them */
#define LINKS  6
#define ROUNDS 100

static const char *missing;

/* A look by rtxg-irq that lasts until it is told to end. */
struct look {
	pid_t pid;
	char path[40];
	char text[16384];
};

static unsigned int links_of(pid_t pid)
{
	char path[64], target[64];
	unsigned int count = 0;
	struct dirent *entry;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		ssize_t n = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = 0;
		count += strstr(target, "bpf_link") || strstr(target, "bpf-raw-tracepoint");
	}
	if (folder)
		closedir(folder);
	return count;
}

static bool attached(const struct look *look, const char *how)
{
	char path[64], target[64];

	if (!how)
		return links_of(look->pid) > LINKS + 3;
	/* the module: its file is open, and attaching takes no time that could be seen */
	for (int fd = 3; fd < 16; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", look->pid, fd);
		n = readlink(path, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = 0;
		if (!strcmp(target, "/dev/rtxg"))
			return true;
	}
	return false;
}

static bool begin(struct look *look, const char *how, const char *which)
{
	static int number;

	snprintf(look->path, sizeof(look->path), "/tmp/irq-%d.json", number++);
	fflush(NULL);
	look->pid = fork();
	if (!look->pid) {
		if (!freopen(look->path, "w", stdout))
			_exit(126);
		execl(PROGRAM, PROGRAM, "-d", "0", "-J", which, how, (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < 6000; i++) {
		if (attached(look, how)) {
			sleep_ns(200000000);
			return true;
		}
		if (waitpid(look->pid, NULL, WNOHANG) == look->pid)
			break;
		sleep_ns(10000000);
	}
	return check(false, "rtxg-irq did not begin");
}

static bool end(struct look *look)
{
	FILE *file;
	int status;

	kill(look->pid, SIGINT);
	waitpid(look->pid, &status, 0);
	file = fopen(look->path, "r");
	if (!check(file && WIFEXITED(status) && !WEXITSTATUS(status), "rtxg-irq ended with %x",
		   status))
		return false;
	look->text[fread(look->text, 1, sizeof(look->text) - 1, file)] = 0;
	fclose(file);
	return true;
}

/* A number in the JSON after a place in it; -1 if it is not there or null. */
static double number_after(const char *place, const char *member)
{
	char name[48], *end;
	const char *at;
	double number;

	snprintf(name, sizeof(name), "\"%s\":", member);
	at = place ? strstr(place, name) : NULL;
	if (!at)
		return -1;
	number = strtod(at + strlen(name), &end);
	return end == at + strlen(name) ? -1 : number;
}

/* The interrupt of the GPU's driver: virtioN-control in /proc/interrupts where N is the GPU's. */
static bool gpu_interrupt(char *name, size_t size)
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

static bool is_rt(void)
{
	struct utsname names;

	uname(&names);
	return strstr(names.version, "PREEMPT_RT") != NULL;
}

/* Until no other thread of the guest wants a CPU: the driver's worker sleeps, and will be woken. */
static void wait_until_quiet(void)
{
	char load[100];
	unsigned int runnable = 0;

	while (check(read_text("/proc/loadavg", load, sizeof(load)) &&
			     sscanf(load, "%*s %*s %*s %u/", &runnable) == 1,
		     "no load") &&
	       runnable > 1)
		sleep_ns(1000000);
}

/* Work for the device with a fence, and a sleep until it is signalled. */
static unsigned int work(int gpu, unsigned int rounds)
{
	unsigned int good = 0;

	for (unsigned int i = 0; i < rounds; i++) {
		wait_until_quiet();
		good += virtgpu_work(gpu);
	}
	return good;
}

static void test_fences_of_an_interrupt(void)
{
	char interrupt[64];
	struct look look;
	const char *all;
	int gpu;

	if (missing)
		skip(missing);
	gpu = virtgpu_open();
	if (!check(gpu >= 0 && gpu_interrupt(interrupt, sizeof(interrupt)), "no virtio-gpu") ||
	    !begin(&look, NULL, interrupt))
		return;
	check(work(gpu, ROUNDS) == ROUNDS, "the GPU does not work");
	close(gpu);
	if (!end(&look))
		return;
	all = strstr(look.text, "],\"fences\":{");
	/* the driver's worker, which its top half or its thread wakes */
	check(number_after(look.text, "ran_workers") >= 1 &&
		      number_after(look.text, "ran_workers_min_ns") > 0 &&
		      number_after(look.text, "ran_workers_min_ns") <=
			      number_after(look.text, "ran_workers_max_ns"),
	      "%.0f workers ran, after %.0f to %.0f ns", number_after(look.text, "ran_workers"),
	      number_after(look.text, "ran_workers_min_ns"),
	      number_after(look.text, "ran_workers_max_ns"));
	note("%s: %.0f interrupts, %.0f fences, %.0f of them emitted, %.0f ns from there; %.0f "
	     "slept, %.0f ns from the top half's entry, at most %.0f",
	     interrupt, number_after(look.text, "entries"), number_after(look.text, "fences"),
	     number_after(look.text, "fence_emits"),
	     number_after(look.text, "fence_busy_ns") / number_after(look.text, "fence_emits"),
	     number_after(look.text, "fence_waits"),
	     number_after(look.text, "fence_wait_ns") / number_after(look.text, "fence_waits"),
	     number_after(look.text, "fence_wait_max_ns"));
	check(number_after(all, "emitted") >= ROUNDS && number_after(all, "signalled") >= ROUNDS,
	      "%.0f emitted, %.0f signalled", number_after(all, "emitted"),
	      number_after(all, "signalled"));
	/*
	 * The kernel may wake another worker in the place of the one that the interrupt woke. With
	 * PREEMPT_RT a worker also sleeps for locks, and is then woken by the thread that had one.
	 */
	check(number_after(look.text, "fences") >= ROUNDS * (is_rt() ? 0.5 : 0.9),
	      "%.0f of %d fences are the interrupt's", number_after(look.text, "fences"), ROUNDS);
	check(number_after(all, "attributed") == number_after(look.text, "fences"),
	      "%.0f attributed in all", number_after(all, "attributed"));
	check(number_after(look.text, "fence_emits") == number_after(look.text, "fences"),
	      "a fence without a beginning");
	/* how often the fence is there before a program waits is the emulator's doing */
	check(number_after(look.text, "fence_waits") >= 1 &&
		      number_after(look.text, "fence_waits") >= number_after(all, "waits") / 2 &&
		      number_after(look.text, "fence_waits") <= number_after(all, "waits"),
	      "%.0f of %.0f slept for them", number_after(look.text, "fence_waits"),
	      number_after(all, "waits"));
	check(number_after(look.text, "fence_wait_ns") >
		      number_after(look.text, "latency_ns") *
			      number_after(look.text, "fence_waits") /
			      (number_after(look.text, "ran") + 1),
	      "who slept for the fence went on before the worker that signalled it ran");
}

/* The same fences while another interrupt is looked at: none of them is its. */
static void test_fences_of_another(void)
{
	int gpu, edu = open_edu(0);
	struct look look;
	const char *all;

	if (missing)
		skip(missing);
	gpu = virtgpu_open();
	if (!check(gpu >= 0, "no virtio-gpu") || !begin(&look, NULL, "rtxg_edu0"))
		return;
	check(!edu_sync(edu, edu_launch(edu, 1000000)), "kernel");
	check(work(gpu, ROUNDS) == ROUNDS, "the GPU does not work");
	close(gpu);
	close(edu);
	if (!end(&look))
		return;
	all = strstr(look.text, "],\"fences\":{");
	check(number_after(look.text, "entries") >= 1 && number_after(look.text, "fences") == 0,
	      "%.0f interrupts, %.0f fences", number_after(look.text, "entries"),
	      number_after(look.text, "fences"));
	check(number_after(all, "signalled") >= ROUNDS && number_after(all, "attributed") == 0,
	      "%.0f signalled, %.0f attributed", number_after(all, "signalled"),
	      number_after(all, "attributed"));
}

/* Every member of an object, in order, without its value: what a program can read. */
static void members(const char *text, char *names, size_t size)
{
	const char *at = strstr(text, "{\"irq\":"), *end = at ? strchr(at, '}') : NULL;
	size_t used = 0;

	names[0] = 0;
	while (at && end && (at = strchr(at, '"')) && at < end) {
		const char *close = strchr(at + 1, '"');

		if (close[1] == ':')
			used += (size_t)snprintf(names + used, size - used, "%.*s ",
						 (int)(close - at - 1), at + 1);
		if (used >= size)
			break;
		at = close + 1;
	}
}

/* One interrupt seen at the same time by the module, in the handler's place, and by BPF. */
static void test_module_and_bpf_agree(void)
{
	struct look module, bpf;
	int edu = open_edu(0);
	char a[1024], b[1024];
	const unsigned int kernels = 50;

	if (missing)
		skip(missing);
	if (!begin(&module, "-m", "rtxg_edu0") || !begin(&bpf, NULL, "rtxg_edu0"))
		return;
	for (unsigned int i = 0; i < kernels; i++)
		check(!edu_sync(edu, edu_launch(edu, 1000000)), "kernel %u", i);
	close(edu);
	sleep_ns(100000000);
	if (!end(&module) || !end(&bpf))
		return;
	check(number_after(module.text, "entries") == kernels &&
		      number_after(bpf.text, "entries") == kernels,
	      "%.0f and %.0f of %u", number_after(module.text, "entries"),
	      number_after(bpf.text, "entries"), kernels);
	check(number_after(module.text, "handled") == number_after(bpf.text, "handled"),
	      "handled: %.0f and %.0f", number_after(module.text, "handled"),
	      number_after(bpf.text, "handled"));
	members(module.text, a, sizeof(a));
	members(bpf.text, b, sizeof(b));
	check(a[0] && !strcmp(a, b), "the module's members: %s; BPF's: %s", a, b);
	check(strstr(module.text, "\"name\":\"rtxg_edu0\"") &&
		      strstr(bpf.text, "\"name\":\"rtxg_edu0\""),
	      "its name");
	check(!shell("rmmod rtxg && insmod /modules/rtxg.ko"), "the module is held");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "fences_of_an_interrupt", test_fences_of_an_interrupt },
		{ "fences_of_another", test_fences_of_another },
		{ "module_and_bpf_agree", test_module_and_bpf_agree },
	};

	load_module();
	if (access(PROGRAM, X_OK))
		missing = "rtxg-irq was not built (make)";
	else if (access("/sys/kernel/btf/vmlinux", R_OK))
		missing = "this kernel has no type information (BTF)";
	/* without a console on it: that is other people's work on the same device */
	else if (shell("while read -r m; do o=; [ $m != drm_kms_helper.ko ] || "
		       "o=fbdev_emulation=0; insmod /modules/$m $o || exit 1; done "
		       "</modules/order.gpu"))
		missing = "this kernel has no virtio-gpu";
	return RUN(cases);
}
