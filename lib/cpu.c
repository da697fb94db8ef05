// SPDX-License-Identifier: MIT
/*
 * cpu.c - CPU scheduling of the calling thread (rtxg_cpu.h), spoken to the kernel module, alone or
 * together with a GPU task. Each thread has a file of its own, so that what it asked for ends with
 * it. May not decide anything.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "internal.h"
#include "rtxg/cpu.h"
#include "rtxg_cpu.h"

static __thread struct {
	int fd; /* 0: none. Standard input is never ours */
	bool attached;
	bool outside; /* by somebody else (`rtxg run`), who also ends it */
	struct rtxg_cpu_task task;
} cpu;

static pthread_key_t end_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A thread that ends without rtx_cpu_exit: its file goes. */
static void thread_ends(void *fd)
{
	close((int)(intptr_t)fd);
}

static void make_key(void)
{
	pthread_key_create(&end_key, thread_ends);
}

static int quiet_call(unsigned long command, void *argument)
{
	int saved = errno, ret = ioctl(cpu.fd, command, argument) < 0 ? -errno : 0;

	errno = saved;
	return ret;
}

/* Puts what the module answered into words. */
static int explain(int ret, const struct rtxg_cpu_task *task, const char *what)
{
	switch (ret) {
	case 0:
		return 0;
	case -EINTR:
		return rtx_lib_failed(ret, "a signal came during %s", what);
	case -EPERM:
		return rtx_lib_failed(
			ret,
			"%s is not permitted: CAP_SYS_NICE is needed, and rtx_cpu_run before "
			"waiting for a period",
			what);
	case -EINVAL:
		return rtx_lib_failed(
			ret,
			"%s was refused: scheduler %u, flags 0x%x, period %llu ns, deadline "
			"%llu ns, runtime %llu ns, priority %u",
			what, task->policy, task->flags, (unsigned long long)task->period_ns,
			(unsigned long long)task->deadline_ns, (unsigned long long)task->runtime_ns,
			task->priority);
	case -EBUSY:
		return rtx_lib_failed(
			ret, "%s: the kernel's admission control refused %llu of %llu ns", what,
			(unsigned long long)task->runtime_ns, (unsigned long long)task->period_ns);
	case -ENOSPC:
		return rtx_lib_failed(
			ret, "%s: admission refused %llu of %llu ns, deadlines would not be safe",
			what,
			(unsigned long long)((task->runtime_ns ? task->runtime_ns : task->wcet_ns) +
					     task->suspend_ns),
			(unsigned long long)task->period_ns);
	case -EUSERS:
		return rtx_lib_failed(
			ret, "%s: the module's parameter max_cpu_tasks allows no more tasks", what);
	case -EOPNOTSUPP:
		return rtx_lib_failed(
			ret,
			"%s: this kernel does not let a module stop threads (task_work_add "
			"is not exported); leave "
			"RTX_CPU_HARD out, or use RTX_CPU_DEADLINE",
			what);
	case -ENOTTY:
		return rtx_lib_failed(
			-EOPNOTSUPP, "%s: the kernel module that is loaded does not know this call",
			what);
	default:
		return rtx_lib_failed(ret, "%s failed: %s", what, rtx_lib_error_name(-ret));
	}
}

static int module_call(unsigned long command, void *argument, const char *what)
{
	return explain(quiet_call(command, argument), &cpu.task, what);
}

static int ready(void)
{
	return cpu.fd ? 0 : rtx_lib_failed(-EPERM, "rtx_cpu_init comes first");
}

int rtx_cpu_init(void)
{
	int fd;

	rtx_lib_forget_error();
	if (cpu.fd)
		return rtx_lib_failed(-EALREADY, "this thread has called rtx_cpu_init already");
	pthread_once(&once, make_key);
	fd = open(RTXG_MODULE_DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return rtx_lib_failed(-errno, "%s cannot be opened: %s; is rtxg.ko loaded?",
				      RTXG_MODULE_DEVICE, rtx_lib_error_name(errno));
	if (!fd) {
		/* standard input was closed: 0 means none here */
		fd = fcntl(0, F_DUPFD_CLOEXEC, 1);
		close(0);
		if (fd < 0)
			return rtx_lib_failed(-EMFILE, "no file descriptor is left");
	}
	memset(&cpu, 0, sizeof(cpu));
	cpu.fd = fd;
	cpu.task.size = sizeof(cpu.task);
	pthread_setspecific(end_key, (void *)(intptr_t)fd);
	return 0;
}

int rtx_cpu_exit(void)
{
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	if (ret)
		return ret;
	pthread_setspecific(end_key, NULL);
	close(cpu.fd);
	memset(&cpu, 0, sizeof(cpu));
	return 0;
}

/* Takes a changed parameter over, or leaves everything as it was. */
static int change(const struct rtxg_cpu_task *wanted)
{
	struct rtxg_cpu_task before = cpu.task;
	int ret;

	cpu.task = *wanted;
	if (!cpu.attached)
		return 0;
	ret = module_call(RTXG_IOC_CPU_SET, &cpu.task, "changing a parameter");
	if (ret)
		cpu.task = before;
	return ret;
}

#define SETTER(member, value)                \
	do {                                 \
		struct rtxg_cpu_task wanted; \
		int ret;                     \
                                             \
		rtx_lib_forget_error();      \
		ret = ready();               \
		if (ret)                     \
			return ret;          \
		wanted = cpu.task;           \
		wanted.member = (value);     \
		return change(&wanted);      \
	} while (0)

static int check_scheduler(enum rtx_cpu_scheduler scheduler, unsigned int flags)
{
	/* the bits are the module's own */
	_Static_assert(RTX_CPU_PARTITIONED == RTXG_CPU_F_PARTITIONED &&
			       RTX_CPU_SIGNAL == RTXG_CPU_F_SIGNAL &&
			       RTX_CPU_HARD == RTXG_CPU_F_HARD,
		       "flags of rtxg_cpu.h and rtxg/cpu.h");
	if ((unsigned int)scheduler >= RTXG_CPU_POLICIES ||
	    flags & ~(RTX_CPU_PARTITIONED | RTX_CPU_SIGNAL | RTX_CPU_HARD))
		return rtx_lib_failed(-EINVAL, "scheduler %d with flags 0x%x does not exist",
				      (int)scheduler, flags);
	return 0;
}

int rtx_cpu_set_scheduler(enum rtx_cpu_scheduler scheduler, unsigned int flags)
{
	struct rtxg_cpu_task wanted;
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	if (ret)
		return ret;
	ret = check_scheduler(scheduler, flags);
	if (ret)
		return ret;
	wanted = cpu.task;
	wanted.policy = (uint32_t)scheduler;
	wanted.flags = flags | (flags & RTX_CPU_PARTITIONED ? wanted.flags & RTXG_CPU_F_CPU : 0) |
		       (wanted.flags & RTXG_CPU_F_SERVER);
	return change(&wanted);
}

int rtx_cpu_set_period(uint64_t ns)
{
	SETTER(period_ns, ns);
}

int rtx_cpu_set_deadline(uint64_t ns)
{
	SETTER(deadline_ns, ns);
}

int rtx_cpu_set_wcet(uint64_t ns)
{
	SETTER(wcet_ns, ns);
}

int rtx_cpu_set_runtime(uint64_t ns)
{
	SETTER(runtime_ns, ns);
}

int rtx_cpu_set_suspension(uint64_t ns)
{
	SETTER(suspend_ns, ns);
}

int rtx_cpu_set_priority(unsigned int priority)
{
	SETTER(priority, priority);
}

int rtx_cpu_set_cpu(int number)
{
	struct rtxg_cpu_task wanted;
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	if (ret)
		return ret;
	wanted = cpu.task;
	wanted.flags &= ~RTXG_CPU_F_CPU;
	if (number >= 0) {
		wanted.flags |= RTXG_CPU_F_CPU | RTXG_CPU_F_PARTITIONED;
		wanted.cpu = (uint32_t)number;
	}
	return change(&wanted);
}

/* If somebody else has attached this thread, as `rtxg run` does, what was asked for there holds. */
static bool take_over(void)
{
	struct rtxg_cpu_task task = { .size = sizeof(task) };

	if (quiet_call(RTXG_IOC_CPU_GET, &task))
		return false;
	cpu.task = task;
	cpu.attached = cpu.outside = true;
	return true;
}

static int run(struct rtxg_cpu_job job)
{
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	if (!ret && !cpu.attached && !take_over()) {
		struct rtxg_cpu_task task = cpu.task;

		ret = explain(quiet_call(RTXG_IOC_CPU_ATTACH, &task), &task,
			      "attaching the thread");
		cpu.attached = !ret;
	}
	job.size = sizeof(job);
	return ret ? ret : module_call(RTXG_IOC_CPU_RUN, &job, "releasing the first job");
}

int rtx_cpu_run(uint64_t timeout_ns)
{
	return run((struct rtxg_cpu_job){ .time_ns = timeout_ns });
}

int rtx_cpu_run_at(uint64_t time_ns)
{
	return run((struct rtxg_cpu_job){ .start_ns = time_ns });
}

int rtx_cpu_wait_period(struct rtx_cpu_job *out)
{
	struct rtxg_cpu_job job = { .size = sizeof(job) };
	struct rtx_cpu_job full;
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	if (ret)
		return ret;
	if (out && (out->size < sizeof(size_t) || out->size > sizeof(full)))
		return rtx_lib_failed(-EINVAL,
				      "job.size is %zu; set it to sizeof(struct rtx_cpu_job)",
				      out->size);
	ret = module_call(RTXG_IOC_CPU_WAIT_PERIOD, &job, "waiting for the next period");
	if (ret || !out)
		return ret;
	full = (struct rtx_cpu_job){
		.size = out->size,
		.job = job.job,
		.release_ns = job.release_ns,
		.deadline_ns = job.deadline_ns,
		.response_ns = job.response_ns,
		.exec_ns = job.exec_ns,
		.late_ns = job.late_ns,
		.missed = job.missed,
		.overrun = job.overrun,
	};
	memcpy(out, &full, out->size);
	return 0;
}

int rtx_cpu_wait_interval(uint64_t ns)
{
	struct rtxg_cpu_job job = { .size = sizeof(job), .time_ns = ns };
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	return ret ? ret : module_call(RTXG_IOC_CPU_WAIT_INTERVAL, &job, "waiting");
}

int rtx_cpu_sleep(uint64_t ns)
{
	return rtx_cpu_wait_interval(ns);
}

int rtx_cpu_suspend(void)
{
	struct rtxg_cpu_job job = { .size = sizeof(job) };
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	return ret ? ret : module_call(RTXG_IOC_CPU_SUSPEND, &job, "suspending");
}

static int pid_call(unsigned long command, pid_t tid, bool on, const char *what)
{
	struct rtxg_cpu_pid target = { .size = sizeof(target), .pid = tid, .on = on };
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	return ret ? ret : module_call(command, &target, what);
}

int rtx_cpu_wake_up(pid_t tid)
{
	return pid_call(RTXG_IOC_CPU_WAKE_UP, tid, false, "waking a task");
}

int rtx_cpu_background(bool on)
{
	return pid_call(RTXG_IOC_CPU_BACKGROUND, 0, on, "changing to the background");
}

int rtx_cpu_reserve_start(void)
{
	return pid_call(RTXG_IOC_CPU_RESERVE, 0, true, "starting the budget");
}

int rtx_cpu_reserve_stop(void)
{
	return pid_call(RTXG_IOC_CPU_RESERVE, 0, false, "stopping the budget");
}

int rtx_cpu_stats(struct rtx_cpu_stats *out)
{
	struct rtxg_cpu_stats stats = { .size = sizeof(stats) };
	struct rtx_cpu_stats full;
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	if (ret)
		return ret;
	if (!out || out->size < sizeof(size_t) || out->size > sizeof(full))
		return rtx_lib_failed(
			-EINVAL, "stats.size is not set; set it to sizeof(struct rtx_cpu_stats)");
	ret = module_call(RTXG_IOC_CPU_STATS, &stats, "reading the statistics");
	if (ret)
		return ret;
	full = (struct rtx_cpu_stats){
		.size = out->size,
		.jobs = stats.jobs,
		.misses = stats.misses,
		.overruns = stats.overruns,
		.exec_ns = stats.exec_ns,
		.max_exec_ns = stats.max_exec_ns,
		.max_response_ns = stats.max_response_ns,
		.throttles = stats.throttles,
		.replenishments = stats.replenishments,
		.budget_ns = stats.budget_ns,
		.gpu_charges = stats.gpu_charges,
		.gpu_charged_ns = stats.gpu_charged_ns,
		.priority = stats.priority,
		.cpu = stats.cpu,
	};
	memcpy(out, &full, out->size);
	return 0;
}

/* ---- both sides at once ---- */

static int take_options(const struct rtx_cpu_options *in, struct rtxg_cpu_task *task)
{
	struct rtx_cpu_options full = { .cpu = -1 };
	int ret;

	if (!in || in->size < offsetof(struct rtx_cpu_options, priority))
		return rtx_lib_failed(-EINVAL,
				      "the CPU's options are missing, or their size is not set: "
				      "sizeof(struct rtx_cpu_options)");
	for (size_t i = sizeof(full); i < in->size; i++)
		if (((const unsigned char *)in)[i])
			return rtx_lib_failed(
				-E2BIG,
				"the CPU's options have a member that this librtxg does not "
				"know (byte %zu is not 0)",
				i);
	memcpy(&full, in, in->size < sizeof(full) ? in->size : sizeof(full));
	ret = check_scheduler(full.scheduler, full.flags);
	if (ret)
		return ret;
	*task = (struct rtxg_cpu_task){
		.size = sizeof(*task),
		.policy = (uint32_t)full.scheduler,
		.flags = full.flags,
		.priority = full.priority,
		.period_ns = full.period_ns,
		.deadline_ns = full.deadline_ns,
		.wcet_ns = full.wcet_ns,
		.runtime_ns = full.runtime_ns,
		.suspend_ns = full.suspend_ns,
	};
	if (full.flags & RTX_CPU_PARTITIONED && full.cpu >= 0) {
		task->flags |= RTXG_CPU_F_CPU;
		task->cpu = (uint32_t)full.cpu;
	}
	return 0;
}

void rtx_lib_cpu_complete(struct rtxg_cpu_task *task, const struct rtx_gpu_options *gpu)
{
	if (!task->period_ns)
		task->period_ns = gpu->period_ns;
	if (!task->deadline_ns && task->period_ns == gpu->period_ns)
		task->deadline_ns = gpu->deadline_ns;
	/* under DEADLINE its runtime counts the GPU already */
	if (!task->suspend_ns && task->policy != RTXG_CPU_DEADLINE)
		task->suspend_ns = gpu->runtime_ns;
}

int rtx_lib_cpu_change(const struct rtxg_cpu_task *task)
{
	struct rtxg_cpu_task copy = *task;

	return quiet_call(RTXG_IOC_CPU_SET, &copy);
}

/* The GPU's host is not the module: its side is open, now the other. */
static int attach_after(rtx_gpu_t *handle, struct cpu_request *request)
{
	int ret;

	rtx_lib_cpu_complete(request->task, &(*handle)->options);
	ret = quiet_call(RTXG_IOC_CPU_ATTACH, request->task);
	if (ret) {
		rtx_gpu_close(*handle);
		*handle = NULL;
		request->refused = true;
	}
	return ret;
}

int rtx_task_open(rtx_gpu_t *handle, const struct rtx_gpu_options *gpu,
		  const struct rtx_cpu_options *options)
{
	struct rtxg_cpu_pid self = { .size = sizeof(self) };
	struct rtxg_cpu_task task, completed;
	struct cpu_request request;
	bool began = !cpu.fd;
	int ret;

	rtx_lib_forget_error();
	if (!handle)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the handle: the pointer is NULL");
	*handle = NULL;
	if (cpu.attached)
		return rtx_lib_failed(-EALREADY,
				      "this thread is attached already: rtx_task_set changes it");
	ret = take_options(options, &task);
	if (!ret && began)
		ret = rtx_cpu_init();
	if (ret)
		return ret;
	completed = task;
	request = (struct cpu_request){ .task = &completed, .file = cpu.fd };
	if (take_over()) {
		/* the CPU's side stands already */
		ret = rtx_lib_open(handle, gpu, NULL);
		cpu.attached = cpu.outside = !ret;
	} else {
		ret = rtx_lib_open(handle, gpu, &request);
		if (!ret && !request.done)
			ret = attach_after(handle, &request);
		if (!ret) {
			cpu.attached = true;
			cpu.task = completed;
		} else if (request.done) {
			/*
			 * the GPU's side failed behind the module's back: what was attached goes
			 * again
			 */
			quiet_call(RTXG_IOC_CPU_DETACH, &self);
		}
	}
	if (ret && began) {
		pthread_setspecific(end_key, NULL);
		close(cpu.fd);
		memset(&cpu, 0, sizeof(cpu));
	}
	/* the GPU's side has said its own words */
	return ret && request.refused ? explain(ret, &completed, "attaching the thread") : ret;
}

int rtx_task_set(rtx_gpu_t handle, const struct rtx_gpu_options *gpu,
		 const struct rtx_cpu_options *options)
{
	struct rtxg_cpu_task task, before = cpu.task;
	struct cpu_request request = { .task = &task, .before = &before, .file = -1 };
	int ret;

	rtx_lib_forget_error();
	ret = cpu.attached
		      ? 0
		      : rtx_lib_failed(-EPERM,
				       "this thread is not attached: rtx_task_open comes first");
	if (!ret)
		ret = take_options(options, &task);
	if (ret)
		return ret;
	ret = rtx_lib_set(handle, gpu, &request);
	cpu.task = ret ? before : task;
	return ret && request.refused ? explain(ret, &task, "changing the thread's parameters")
				      : ret;
}
