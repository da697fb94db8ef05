// SPDX-License-Identifier: MIT
/*
 * test_cpu_why.c - the reason for a refused CPU policy names the rule, its value on the machine and
 * the remedy.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <rtxg/cpu.h>

#include "../../cli/cpu_why.h"

static char why[512];

static void assert_says(const char *const *words)
{
	for (; *words; words++)
		if (!strstr(why, *words))
			fail_msg("'%s' is not in: %s", *words, why);
}

#define SAYS(...) assert_says((const char *const[]){ __VA_ARGS__, NULL })

static struct cpu_machine machine_of_a_user(void)
{
	struct cpu_machine machine = { .rt_runtime_us = 950000, .rt_period_us = 1000000 };

	snprintf(machine.program, sizeof(machine.program), "/opt/bin/rtxg");
	return machine;
}

static void kernel(int policy, int error, const struct cpu_machine *machine)
{
	struct cpu_settings settings = { .has_policy = true,
					 .policy = policy,
					 .priority = 50,
					 .runtime_ns = 1520000,
					 .period_ns = 10000000 };

	cpu_why_kernel(&settings, error, machine, why, sizeof(why));
}

static void no_room_names_the_share_asked_and_the_kernels_limit(void **state)
{
	struct cpu_machine machine = machine_of_a_user();

	(void)state;
	kernel(SCHED_DEADLINE, -EBUSY, &machine);
	SAYS("15.2 %", "95 %", "sched_rt_runtime_us", "ask for less");
}

static void a_priority_without_privilege_names_the_limit_and_how_to_raise_it(void **state)
{
	struct cpu_machine machine = machine_of_a_user();

	(void)state;
	machine.rtprio = 7;
	kernel(SCHED_FIFO, -EPERM, &machine);
	SAYS("RLIMIT_RTPRIO is 7", "priority 50", "limits.d", "root");
}

static void a_policy_without_privilege_names_the_file_for_setcap(void **state)
{
	struct cpu_machine machine = machine_of_a_user();
	struct cpu_settings fixed = { .has_policy = true,
				      .policy = CPU_POLICY_MODULE + RTXG_CPU_FP };

	(void)state;
	kernel(SCHED_DEADLINE, -EPERM, &machine);
	SAYS("deadline", "CAP_SYS_NICE", "setcap cap_sys_nice+ep /opt/bin/rtxg");
	cpu_why_module(&fixed, -EPERM, &machine, why, sizeof(why));
	SAYS("fp", "CAP_SYS_NICE", "setcap cap_sys_nice+ep /opt/bin/rtxg");
}

static void a_cgroup_without_budget_is_named_with_its_file(void **state)
{
	struct cpu_machine machine = machine_of_a_user();

	(void)state;
	machine.may_nice = machine.group_without_budget = true;
	snprintf(machine.group, sizeof(machine.group), "/sys/fs/cgroup/cpu/box");
	kernel(SCHED_RR, -EPERM, &machine);
	SAYS("/sys/fs/cgroup/cpu/box/cpu.rt_runtime_us", "RT_GROUP_SCHED", "cgroup.procs");
}

static void a_privileged_refusal_names_what_is_left(void **state)
{
	struct cpu_machine machine = machine_of_a_user();

	(void)state;
	machine.may_nice = true;
	kernel(SCHED_DEADLINE, -EPERM, &machine);
	SAYS("cpuset", "taskset -p PID", "partition root");
	kernel(SCHED_FIFO, -EPERM, &machine);
	SAYS("seccomp", "RT_GROUP_SCHED", "outside of the container");
}

static void values_that_the_kernel_refuses_have_a_place_to_look_them_up(void **state)
{
	struct cpu_machine machine = machine_of_a_user();

	(void)state;
	kernel(SCHED_DEADLINE, -EINVAL, &machine);
	SAYS("does not accept", "rtxg limits");
}

static void module(int error, const struct cpu_settings *settings)
{
	struct cpu_machine machine = machine_of_a_user();

	machine.max_cpu_tasks = 256;
	cpu_why_module(settings, error, &machine, why, sizeof(why));
}

static void each_refusal_of_the_module_has_a_remedy(void **state)
{
	struct cpu_settings settings = { .has_policy = true,
					 .policy = CPU_POLICY_MODULE + RTXG_CPU_EDF };

	(void)state;
	module(-ENOENT, &settings);
	SAYS("/dev/rtxg", "modprobe rtxg", "deadline");
	module(-EACCES, &settings);
	SAYS("/dev/rtxg", "device_mode");
	module(-EUSERS, &settings);
	SAYS("max_cpu_tasks (256) tasks are attached already", "--cpu-policy other", "1024");
	module(-EOPNOTSUPP, &settings);
	SAYS("task_work_add", "--cpu-hard", "--cpu-policy deadline");
	module(-ENOTTY, &settings);
	SAYS("older", RTXG_VERSION);
	settings.partitioned = true;
	settings.partition = 77;
	module(-EINVAL, &settings);
	SAYS("CPU 77", "online");
}

static void not_admitted(uint32_t test, uint64_t needed, uint64_t there)
{
	struct rtxg_cpu_admission answer = {
		.test = test, .pid = 4321, .cpu = 3, .needed = needed, .there = there
	};

	cpu_why_not_admitted(&answer, why, sizeof(why));
}

static void an_admission_test_gives_its_numbers(void **state)
{
	(void)state;
	not_admitted(RTXG_CPU_CAPACITY, 1250000, 950000);
	SAYS("on CPU 3", "1.250", "0.950", "cpu_capacity_ppm", "admission=0", "ask for less");
	not_admitted(RTXG_CPU_DENSITY, 1100000, 1000000);
	SAYS("density", "1.100 of 1.000", "admission=0");
	not_admitted(RTXG_CPU_RESPONSE, 12000000, 10000000);
	SAYS("process 4321", "12ms", "deadline is 10ms", "admission=0");
	not_admitted(RTXG_CPU_WINDOW, 3000000, 2000000);
	SAYS("process 4321", "3ms", "2ms", "admission=0");
	not_admitted(RTXG_CPU_UNKNOWN, 0, 0);
	SAYS("--cpu-runtime", "--cpu-wcet", "admission=2");
	not_admitted(RTXG_CPU_ADMITTED, 0, 0);
	SAYS("try again");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_room_names_the_share_asked_and_the_kernels_limit),
		cmocka_unit_test(a_priority_without_privilege_names_the_limit_and_how_to_raise_it),
		cmocka_unit_test(a_policy_without_privilege_names_the_file_for_setcap),
		cmocka_unit_test(a_cgroup_without_budget_is_named_with_its_file),
		cmocka_unit_test(a_privileged_refusal_names_what_is_left),
		cmocka_unit_test(values_that_the_kernel_refuses_have_a_place_to_look_them_up),
		cmocka_unit_test(each_refusal_of_the_module_has_a_remedy),
		cmocka_unit_test(an_admission_test_gives_its_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
