// SPDX-License-Identifier: MIT
/*
 * cpu.c - CPU scheduling of the calling thread (rtxg_cpu.h), spoken to the kernel module, alone or
 * together with a GPU task. Each thread has a file of its own, so that what it asked for ends with
 * it. May not decide anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cpu.h"
#include "errors.h"
#include "sys.h"
#include "rtxg/control.h"
#include "rtxg_cpu_admit.h"

static __thread struct cpu_thread cpu;

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

struct cpu_thread *rtx_lib_cpu_thread(void)
{
	return &cpu;
}

int rtx_lib_cpu_call(unsigned long command, void *argument)
{
	int saved = errno, ret = ioctl(cpu.fd, command, argument) < 0 ? -errno : 0;

	errno = saved;
	return ret;
}

/* Puts what the module answered into words. */
int rtx_lib_cpu_explain(int ret, const struct rtxg_cpu_task *task, const char *what)
{
	const struct rtxg_admit_job job = { .policy = task->policy,
					    .period_ns = task->period_ns,
					    .runtime_ns = task->runtime_ns,
					    .wcet_ns = task->wcet_ns,
					    .suspend_ns = task->suspend_ns };

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
			what, (unsigned long long)rtxg_admit_cost(&job),
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
	return rtx_lib_cpu_explain(rtx_lib_cpu_call(command, argument), &cpu.task, what);
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

void rtx_lib_cpu_end(void)
{
	pthread_setspecific(end_key, NULL);
	close(cpu.fd);
	memset(&cpu, 0, sizeof(cpu));
}

int rtx_cpu_exit(void)
{
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	if (ret)
		return ret;
	rtx_lib_cpu_end();
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

/* What one of the calls below is to change, beginning from what the thread has. */
static int begin_change(struct rtxg_cpu_task *wanted)
{
	int ret;

	rtx_lib_forget_error();
	ret = ready();
	*wanted = cpu.task;
	return ret;
}

int rtx_lib_cpu_check(enum rtx_cpu_scheduler scheduler, unsigned int flags)
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
	int ret = begin_change(&wanted);

	if (!ret)
		ret = rtx_lib_cpu_check(scheduler, flags);
	if (ret)
		return ret;
	wanted.policy = (uint32_t)scheduler;
	wanted.flags = flags | (wanted.flags & RTXG_CPU_F_SERVER) |
		       (wanted.flags &
			(flags & RTX_CPU_PARTITIONED ? RTXG_CPU_F_CPU : RTXG_CPU_F_CLUSTER));
	if (!(wanted.flags & RTXG_CPU_F_CLUSTER))
		wanted.set = wanted.set_size = 0;
	return change(&wanted);
}

int rtx_cpu_set_period(uint64_t ns)
{
	struct rtxg_cpu_task wanted;
	int ret = begin_change(&wanted);

	wanted.period_ns = ns;
	return ret ? ret : change(&wanted);
}

int rtx_cpu_set_deadline(uint64_t ns)
{
	struct rtxg_cpu_task wanted;
	int ret = begin_change(&wanted);

	wanted.deadline_ns = ns;
	return ret ? ret : change(&wanted);
}

int rtx_cpu_set_wcet(uint64_t ns)
{
	struct rtxg_cpu_task wanted;
	int ret = begin_change(&wanted);

	wanted.wcet_ns = ns;
	return ret ? ret : change(&wanted);
}

int rtx_cpu_set_runtime(uint64_t ns)
{
	struct rtxg_cpu_task wanted;
	int ret = begin_change(&wanted);

	wanted.runtime_ns = ns;
	return ret ? ret : change(&wanted);
}

int rtx_cpu_set_suspension(uint64_t ns)
{
	struct rtxg_cpu_task wanted;
	int ret = begin_change(&wanted);

	wanted.suspend_ns = ns;
	return ret ? ret : change(&wanted);
}

int rtx_cpu_set_priority(unsigned int priority)
{
	struct rtxg_cpu_task wanted;
	int ret = begin_change(&wanted);

	wanted.priority = priority;
	return ret ? ret : change(&wanted);
}

int rtx_cpu_set_cpu(int number)
{
	struct rtxg_cpu_task wanted;
	int ret = begin_change(&wanted);

	if (ret)
		return ret;
	wanted.flags &= ~RTXG_CPU_F_CPU;
	if (number >= 0) {
		wanted.flags &= ~RTXG_CPU_F_CLUSTER;
		wanted.flags |= RTXG_CPU_F_CPU | RTXG_CPU_F_PARTITIONED;
		wanted.set = wanted.set_size = 0;
		wanted.cpu = (uint32_t)number;
	}
	return change(&wanted);
}

int rtx_cpu_set_cluster(const uint64_t *set, size_t words)
{
	struct rtxg_cpu_task wanted;
	uint64_t before[RTX_LIB_CPU_SET_WORDS];
	int ret = begin_change(&wanted);

	if (ret)
		return ret;
	if (words > RTX_LIB_CPU_SET_WORDS)
		return rtx_lib_failed(-EINVAL, "a set of %zu words: at most %d are possible", words,
				      RTX_LIB_CPU_SET_WORDS);
	memcpy(before, cpu.set, sizeof(before));
	wanted.flags &= ~(RTXG_CPU_F_CPU | RTXG_CPU_F_CLUSTER);
	wanted.set = wanted.set_size = 0;
	if (words) {
		memcpy(cpu.set, set, words * sizeof(*set));
		wanted.flags = (wanted.flags & ~RTXG_CPU_F_PARTITIONED) | RTXG_CPU_F_CLUSTER;
		wanted.set = (uintptr_t)cpu.set;
		wanted.set_size = (uint32_t)(words * sizeof(*set));
	}
	ret = change(&wanted);
	if (ret)
		memcpy(cpu.set, before, sizeof(before));
	return ret;
}

/*
 * If another program has attached this thread, as `rtxg run` does, what was asked for there holds.
 */
bool rtx_lib_cpu_take_over(void)
{
	struct rtxg_cpu_task task = { .size = sizeof(task) };

	if (rtx_lib_cpu_call(RTXG_IOC_CPU_GET, &task))
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
	if (!ret && !cpu.attached && !rtx_lib_cpu_take_over()) {
		struct rtxg_cpu_task task = cpu.task;

		ret = rtx_lib_cpu_explain(rtx_lib_cpu_call(RTXG_IOC_CPU_ATTACH, &task), &task,
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

void rtx_lib_cpu_complete(struct rtxg_cpu_task *task, const struct rtx_gpu_options *gpu)
{
	if (!task->period_ns)
		task->period_ns = gpu->period_ns;
	if (!task->deadline_ns && task->period_ns == gpu->period_ns)
		task->deadline_ns = gpu->deadline_ns;
	if (!task->suspend_ns && rtxg_admit_suspends(task->policy))
		task->suspend_ns = gpu->runtime_ns;
}

/*
 * Without the module there is nothing to tell, and to ask the kernel how a thread is scheduled
 * costs as much as a small launch: so many waits then pass before both are looked at again.
 */
#define WAITS_UNSEEN 1024

/*
 * For threads that another program has put under SCHED_DEADLINE, and opened for these alone: a
 * module that programs have open cannot be unloaded.
 */
static int module_fd = -1;

static int open_module(void)
{
	int fd = load(&module_fd), none = -1;

	if (fd >= 0)
		return fd;
	fd = open(RTXG_MODULE_DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0 || __atomic_compare_exchange_n(&module_fd, &none, fd, false, __ATOMIC_SEQ_CST,
						  __ATOMIC_SEQ_CST))
		return fd;
	close(fd); /* another thread was faster */
	return none;
}

static bool module_is_there(void)
{
	return load(&module_fd) >= 0 || !access(RTXG_MODULE_DEVICE, F_OK);
}

static __thread __attribute__((tls_model("initial-exec"))) struct {
	unsigned int depth, unseen;
	bool told;
} wait;

static __attribute__((noinline, cold)) int tell_of_wait(bool on)
{
	struct rtxg_cpu_pid request = { .size = sizeof(request), .on = on };
	int saved = errno, fd, ret = 0;

	if (on && !rtx_lib_yield_costs_budget()) {
		wait.unseen = module_is_there() ? 0 : WAITS_UNSEEN;
		errno = saved;
		return 0;
	}
	fd = open_module();
	if (fd < 0)
		ret = -ENOENT;
	else if (ioctl(fd, RTXG_IOC_CPU_GPU_WAIT, &request) < 0)
		ret = -errno;
	wait.told = on && !ret;
	errno = saved;
	return ret;
}

int rtx_lib_cpu_waits_for_gpu(bool on)
{
	if (on ? wait.depth++ : !wait.depth || --wait.depth)
		return 0;
	if (!on && !wait.told)
		return 0;
	if (on && wait.unseen) {
		wait.unseen--;
		return 0;
	}
	return tell_of_wait(on);
}

int rtx_cpu_wait_for_gpu(bool on)
{
	int ret = rtx_lib_cpu_waits_for_gpu(on);

	return ret ? rtx_lib_failed(-ENOENT,
				    "the module does not know this thread: call rtx_cpu_run "
				    "first, or begin the program with rtxg run")
		   : 0;
}
