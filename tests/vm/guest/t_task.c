// SPDX-License-Identifier: MIT
/*
 * t_task.c - one task on both sides: one call asks for permits on the GPU and for a policy on the
 * CPU. Afterwards either both are granted, or nothing has changed, for a refusal by each side. The
 * calls go by ioctl, by librtxg, and by `rtxg run` and `rtxg set` with rtxgd before the module.
 */
#include "gpu.h"

#include <sys/stat.h>

#include <rtxg/cpu.h>
#include <rtxg/task.h>
#include <rtxg_cpu.h>

static int policy_now(void)
{
	return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
}

static int cpu_of(int fd, int pid, struct rtxg_cpu_task *task)
{
	*task = (struct rtxg_cpu_task){ .size = sizeof(*task), .pid = pid };
	return call(fd, RTXG_IOC_CPU_GET, task);
}

/* The task of this or another process on the GPU: false if it has none. */
static bool gpu_of(int pid, struct rtxg_host_task *task)
{
	struct rtxg_host_list request = { .size = sizeof(request),
					  .what = RTXG_HOST_LIST_TASKS,
					  .count = 1,
					  .entry = sizeof(*task),
					  .entries = (uintptr_t)task };
	int fd = open_rtxg();
	bool found = false;

	while (!found && !call(fd, RTXG_IOC_HOST_LIST, &request) && request.count) {
		found = (int)task->pid == pid;
		request.count = 1;
	}
	close(fd);
	return found;
}

static struct rtxg_host_open gpu_side(const char *vgpu)
{
	struct rtxg_host_open gpu = {
		.size = sizeof(gpu), .priority = 3, .runtime_ns = 2 * MS, .period_ns = 10 * MS
	};

	strcpy(gpu.vgpu, vgpu);
	return gpu;
}

static struct rtxg_cpu_task cpu_side(void)
{
	return (struct rtxg_cpu_task){ .size = sizeof(struct rtxg_cpu_task),
				       .policy = RTXG_CPU_EDF,
				       .period_ns = 500 * MS,
				       .runtime_ns = 400 * MS };
}

static int both(int fd, uint32_t flags, void *gpu, void *cpu, int cpu_file, uint32_t *refused)
{
	struct rtxg_task task = { .size = sizeof(task),
				  .flags = flags,
				  .gpu = (uintptr_t)gpu,
				  .cpu = (uintptr_t)cpu,
				  .cpu_file = cpu_file };
	int err = call(fd, RTXG_IOC_TASK, &task);

	*refused = task.refused;
	return err;
}

static void test_open_both_or_neither(void)
{
	int fd = open_rtxg(), owner = open_rtxg();
	struct rtxg_host_open gpu = gpu_side("nowhere");
	struct rtxg_cpu_task cpu = cpu_side(), now;
	struct rtxg_host_task task;
	uint32_t refused;
	int err;

	err = both(fd, 0, &gpu, &cpu, -1, &refused);
	check(err == -ENOENT && refused == RTXG_TASK_GPU, "no such vGPU: refused by %u", refused);
	check(policy_now() == SCHED_OTHER && cpu_of(fd, 0, &now) == -ENOENT,
	      "the CPU's side was left behind: policy %d", policy_now());
	gpu = gpu_side("");
	cpu.period_ns = 1;
	err = both(fd, 0, &gpu, &cpu, -1, &refused);
	check(err == -EINVAL && refused == RTXG_TASK_CPU, "period of 1 ns: refused by %u", refused);
	check(!gpu_of(getpid(), &task), "the GPU's side was left behind");
	cpu = cpu_side();
	cpu.flags = RTXG_CPU_F_PARTITIONED | RTXG_CPU_F_CPU;
	cpu.cpu = 63;
	err = both(fd, 0, &gpu, &cpu, -1, &refused);
	check(err == -EINVAL && refused == RTXG_TASK_CPU, "CPU 63: refused by %u", refused);
	check(!gpu_of(getpid(), &task) && policy_now() == SCHED_OTHER, "something was left behind");
	/* nothing stands in the way of a second try on the same file */
	cpu = cpu_side();
	err = both(fd, 0, &gpu, &cpu, owner, &refused);
	check(!err && !refused, "both: refused by %u", refused);
	check(gpu_of(getpid(), &task) && task.priority == 3 && task.runtime_ns == 2 * MS,
	      "the GPU's side: priority %u", task.priority);
	check(policy_now() == SCHED_FIFO && !cpu_of(fd, 0, &now) && now.runtime_ns == 400 * MS &&
		      now.threads == 1,
	      "the CPU's side: policy %d", policy_now());
	err = both(fd, 0, &gpu, &cpu, owner, &refused);
	check(err == -EEXIST && refused == RTXG_TASK_CPU, "twice: refused by %u", refused);
	/* each ends with its own file */
	close(owner);
	check(policy_now() == SCHED_OTHER && gpu_of(getpid(), &task),
	      "after the CPU's file: policy %d", policy_now());
	cpu = cpu_side();
	err = both(fd, 0, &gpu, &cpu, -1, &refused);
	check(err == -EALREADY && refused == RTXG_TASK_GPU, "a second GPU task: refused by %u",
	      refused);
	check(policy_now() == SCHED_OTHER, "the CPU's side was left behind: policy %d",
	      policy_now());
	close(fd);
	check(!gpu_of(getpid(), &task), "the GPU's side outlived its file");
}

static void test_set_both_or_neither(void)
{
	int fd = open_rtxg();
	struct rtxg_host_open gpu = gpu_side("");
	struct rtxg_host_set set = { .size = sizeof(set), .priority = 9, .runtime_ns = 4 * MS };
	struct rtxg_cpu_task cpu = cpu_side(), now;
	struct rtxg_host_task task;
	uint32_t refused;
	int err;

	err = both(fd, RTXG_TASK_F_SET, &set, &cpu, -1, &refused);
	check(err == -EBADFD && refused == RTXG_TASK_GPU, "before open: by %u", refused);
	err = both(fd, 0, &gpu, &cpu, -1, &refused);
	check(!err, "both: refused by %u", refused);
	cpu.period_ns = 1;
	err = both(fd, RTXG_TASK_F_SET, &set, &cpu, -1, &refused);
	check(err == -EINVAL && refused == RTXG_TASK_CPU, "1 ns: by %u", refused);
	check(gpu_of(getpid(), &task) && task.priority == 3 && task.runtime_ns == 2 * MS,
	      "the GPU's side changed: priority %u", task.priority);
	cpu = cpu_side();
	cpu.policy = RTXG_CPU_RM;
	cpu.period_ns = 600 * MS;
	set.runtime_ns = 1000 * MS; /* of a period of 10 ms */
	err = both(fd, RTXG_TASK_F_SET, &set, &cpu, -1, &refused);
	check(err == -EINVAL && refused == RTXG_TASK_GPU, "1 s of 10 ms: by %u", refused);
	check(!cpu_of(fd, 0, &now) && now.policy == RTXG_CPU_EDF && now.period_ns == 500 * MS,
	      "the CPU's side changed: policy %u", now.policy);
	set.runtime_ns = 4 * MS;
	err = both(fd, RTXG_TASK_F_SET, &set, &cpu, -1, &refused);
	check(!err, "set: refused by %u", refused);
	check(gpu_of(getpid(), &task) && task.priority == 9 && task.runtime_ns == 4 * MS &&
		      task.period_ns == 10 * MS,
	      "priority %u", task.priority);
	check(!cpu_of(fd, 0, &now) && now.policy == RTXG_CPU_RM && now.period_ns == 600 * MS,
	      "policy %u", now.policy);
	close(fd);
}

static void test_bad_requests(void)
{
	struct rtxg_host_open gpu = gpu_side("");
	struct rtxg_cpu_task cpu = cpu_side();
	struct rtxg_task good = { .size = sizeof(good),
				  .gpu = (uintptr_t)&gpu,
				  .cpu = (uintptr_t)&cpu,
				  .cpu_file = -1 },
			 bad;
	struct rtxg_host_task task;
	int fd = open_rtxg(), null = open("/dev/null", O_RDWR);

#define refused(change, err)                            \
	do {                                            \
		bad = good;                             \
		change;                                 \
		int r_ = call(fd, RTXG_IOC_TASK, &bad); \
		check(r_ == (err), #change ": %d", r_); \
	} while (0)
	refused(bad.size = 4, -EINVAL);
	refused(bad.flags = 1u << 31, -EINVAL);
	refused(bad.reserved[1] = 1, -EINVAL);
	refused(bad.gpu = 1, -EFAULT);
	refused(bad.cpu = 0, -EFAULT);
	refused(bad.cpu_file = -2, -EINVAL);
	refused(bad.cpu_file = 1000, -EBADF);
	refused(bad.cpu_file = null, -EBADF);
	refused(bad.flags = RTXG_TASK_F_SET; bad.cpu_file = 0, -EINVAL);
	fflush(NULL);
	pid_t child = fork();
	int status = -1;

	if (!child) {
		if (setresuid(65534, 65534, 65534))
			_exit(2);
		_exit(call(fd, RTXG_IOC_TASK, &good) == -EPERM && !gpu_of(getpid(), &task) ? 0 : 1);
	}
	waitpid(child, &status, 0);
	check(!status, "an unprivileged caller: %d", status);
	check(!gpu_of(getpid(), &task) && policy_now() == SCHED_OTHER, "something was left behind");
	close(null);
	close(fd);
}

static void test_library(void)
{
	struct rtx_gpu_options gpu = RTX_INIT(struct rtx_gpu_options);
	struct rtx_cpu_options cpu = {
		.size = sizeof(cpu), .scheduler = RTX_CPU_EDF, .cpu = -1, .runtime_ns = 200 * MS
	};
	struct rtxg_cpu_task now;
	struct rtxg_host_task task;
	int fd = open_rtxg();
	rtx_gpu_t handle;

	gpu.vgpu = "nowhere";
	gpu.period_ns = 500 * MS;
	gpu.runtime_ns = 100 * MS;
	check(rtx_task_open(&handle, &gpu, &cpu) == -ENOENT && !handle, "no such vGPU");
	check(policy_now() == SCHED_OTHER, "the CPU's side was left behind");
	gpu.vgpu = NULL;
	cpu.runtime_ns = 600 * MS;
	check(rtx_task_open(&handle, &gpu, &cpu) == -EINVAL && !handle &&
		      strstr(rtx_strerror(), "600000000"),
	      "%s", rtx_strerror());
	check(!gpu_of(getpid(), &task), "the GPU's side was left behind");
	cpu.runtime_ns = 200 * MS;
	check(!rtx_task_open(&handle, &gpu, &cpu), "both: %s", rtx_strerror());
	check(!cpu_of(fd, 0, &now) && now.period_ns == 500 * MS && now.suspend_ns == 100 * MS,
	      "what was not said: period %llu", (unsigned long long)now.period_ns);
	check(rtx_task_open(&handle, &gpu, &cpu) == -EALREADY, "twice");
	check(gpu_of(getpid(), &task), "no task on the GPU");
	check(!rtx_cpu_run(0) && !rtx_cpu_wait_period(NULL), "a job: %s", rtx_strerror());
	close(fd);
}

static void test_library_set(void)
{
	struct rtx_gpu_options gpu = RTX_INIT(struct rtx_gpu_options);
	struct rtx_cpu_options cpu = {
		.size = sizeof(cpu), .scheduler = RTX_CPU_RM, .cpu = -1, .runtime_ns = 100 * MS
	};
	struct rtxg_cpu_task now;
	struct rtxg_host_task task;
	rtx_gpu_t handle;
	int fd = open_rtxg();

	check(rtx_task_set(NULL, &gpu, &cpu) < 0, "without a handle");
	/* the thread is attached still: the GPU's side alone is opened */
	rtx_cpu_exit();
	check(policy_now() == SCHED_OTHER, "after exit: %d", policy_now());
	gpu.period_ns = 400 * MS;
	check(!rtx_task_open(&handle, &gpu, &cpu), "both: %s", rtx_strerror());
	gpu.period_ns = 0;
	gpu.priority = 5;
	cpu.runtime_ns = 700 * MS;
	check(rtx_task_set(handle, &gpu, &cpu) == -EINVAL, "700 of 400 ms");
	check(gpu_of(getpid(), &task) && task.priority != 5, "the GPU's side changed");
	cpu.runtime_ns = 150 * MS;
	check(!rtx_task_set(handle, &gpu, &cpu), "set: %s", rtx_strerror());
	check(!cpu_of(fd, 0, &now) && now.runtime_ns == 150 * MS && now.period_ns == 400 * MS,
	      "runtime %llu", (unsigned long long)now.runtime_ns);
	check(!rtx_gpu_close(handle) && policy_now() == SCHED_FIFO,
	      "closing the GPU's side ended the other");
	check(!rtx_cpu_exit() && policy_now() == SCHED_OTHER, "exit: %s", rtx_strerror());
	close(fd);
}

/* ---- the command line, and rtxgd ---- */

static char output[4096];

static int type(const char *format, ...)
{
	char command[1024];
	size_t length;
	va_list args;
	FILE *pipe;
	int raw;

	va_start(args, format);
	vsnprintf(command, sizeof(command) - 6, format, args);
	va_end(args);
	strcat(command, " 2>&1");
	fflush(NULL);
	pipe = popen(command, "r");
	length = fread(output, 1, sizeof(output) - 1, pipe);
	output[length] = 0;
	raw = pclose(pipe);
	return WIFEXITED(raw) ? WEXITSTATUS(raw) : -1;
}

/* The program that is run: opens its GPU task as any program does, then lives on. */
static int be_program(void)
{
	rtx_gpu_t handle;
	int err = rtx_gpu_open(&handle, NULL);

	if (err) {
		printf("program: %d %s\n", err, rtx_strerror());
		return 1;
	}
	for (;;)
		pause();
}

static void test_command_line(void)
{
	static const char *const tool = "/tests/w_rtxg";
	struct rtxg_cpu_task cpu = {};
	struct rtxg_host_task gpu;
	int fd, err = -1, ready[2];
	char number[12];
	pid_t daemon, child;

	if (access(tool, X_OK) || access("/tests/w_rtxgd", X_OK))
		skip("the commands rtxg and rtxgd were not built (make)");
	mkdir("/run/rtxg", 0755);
	mkdir("/tmp/root", 0755);
	if (pipe(ready))
		return;
	fflush(NULL);
	daemon = fork();
	if (!daemon) {
		snprintf(number, sizeof(number), "%d", ready[1]);
		close(ready[0]);
		execl("/tests/w_rtxgd", "rtxgd", "--system", "--config-root", "/tmp/root",
		      "--ready-fd", number, NULL);
		_exit(9);
	}
	close(ready[1]);
	check(read(ready[0], number, 1) == 1, "rtxgd did not get ready");
	close(ready[0]);
	check(!type("%s vgpu create V --min 40%%", tool), "vgpu create: %s", output);
	fflush(NULL);
	child = fork();
	if (!child) {
		execl(tool, tool, "run", "--no-layer", "-v", "V", "-P", "500ms", "-T", "30ms",
		      "--cpu-policy", "edf", "--cpu-runtime", "300ms", "--", "/tests/t_task",
		      "program", NULL);
		_exit(9);
	}
	fd = open_rtxg();
	for (int i = 0; i < 400 && !gpu_of(child, &gpu); i++)
		sleep_ns(20 * MS);
	if (check(gpu_of(child, &gpu), "the program has no task on the GPU")) {
		check(!strcmp(gpu.vgpu, "V") && gpu.period_ns == 500 * MS &&
			      gpu.runtime_ns == 30 * MS,
		      "vGPU %s, period %llu", gpu.vgpu, (unsigned long long)gpu.period_ns);
		err = cpu_of(fd, child, &cpu);
		check(!err && cpu.policy == RTXG_CPU_EDF && cpu.period_ns == 500 * MS &&
			      cpu.runtime_ns == 300 * MS && cpu.suspend_ns == 30 * MS,
		      "err %d, policy %u, runtime %llu", err, cpu.policy,
		      (unsigned long long)cpu.runtime_ns);
		check(!type("%s set -p %d -P 600ms -T 40ms --cpu-runtime 250ms --priority 7", tool,
			    child),
		      "set: %s", output);
		check(gpu_of(child, &gpu) && gpu.period_ns == 600 * MS &&
			      gpu.runtime_ns == 40 * MS && gpu.priority == 7,
		      "priority %u, period %llu", gpu.priority, (unsigned long long)gpu.period_ns);
		check(!cpu_of(fd, child, &cpu) && cpu.period_ns == 600 * MS &&
			      cpu.runtime_ns == 250 * MS && cpu.suspend_ns == 40 * MS,
		      "period %llu, runtime %llu", (unsigned long long)cpu.period_ns,
		      (unsigned long long)cpu.runtime_ns);
		/* the GPU's side refuses: the CPU's is as it was. And the other way round */
		check(type("%s set -p %d -v nowhere --cpu-runtime 200ms", tool, child) == 1,
		      "a vGPU that is not there: %s", output);
		check(!cpu_of(fd, child, &cpu) && cpu.runtime_ns == 250 * MS,
		      "the CPU's side changed: runtime %llu", (unsigned long long)cpu.runtime_ns);
		check(type("%s set -p %d --priority 3 --cpu-partition 63", tool, child) == 1,
		      "CPU 63: %s", output);
		check(gpu_of(child, &gpu) && gpu.priority == 7,
		      "the GPU's side changed: priority %u", gpu.priority);
		check(!type("%s ps -m -J -o PID,VGPU,CPUPOLICY", tool) && strstr(output, "\"edf\""),
		      "ps: %s", output);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	/* refused on the CPU's side: the program does not start, and its vGPU goes */
	check(type("%s run --no-layer --min 10%% -P 10ms --cpu-policy edf --cpu-partition 63 -- "
		   "/bin/true",
		   tool) == 125,
	      "%s", output);
	for (int i = 0; i < 6000 && !type("%s vgpu list", tool) && strstr(output, "run-"); i++)
		sleep_ns(20 * MS);
	check(!strstr(output, "run-"), "its vGPU is still there: %s", output);
	close(fd);
	kill(daemon, SIGTERM);
	waitpid(daemon, NULL, 0);
}

int main(int argc, char **argv)
{
	static const struct ktap_case cases[] = {
		{ "open_both_or_neither", test_open_both_or_neither },
		{ "set_both_or_neither", test_set_both_or_neither },
		{ "bad_requests", test_bad_requests },
		{ "library", test_library },
		{ "library_set", test_library_set },
		{ "command_line", test_command_line },
	};

	if (argc > 1 && !strcmp(argv[1], "program"))
		return be_program();
	load_module();
	return RUN(cases);
}
