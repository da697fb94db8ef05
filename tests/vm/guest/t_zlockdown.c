// SPDX-License-Identifier: MIT
/*
 * t_zlockdown.c - what a suspend leaves as it is, and what a locked down kernel refuses. The last
 * of the programs by its name: a kernel that was locked down stays so until the next boot, and
 * loads no module that it does not trust.
 */
#include "rtxg_vm.h"

#include <rtxg/cpu.h>

#include <sys/mount.h>

#include <rtxg/irq.h>

#define LOCKDOWN "/sys/kernel/security/lockdown"

static int attach(uint32_t flags)
{
	struct rtxg_irq_attach request = { .size = sizeof(request),
					   .flags = RTXG_IRQ_F_BY_NAME | flags,
					   .name = "rtxg_edu0" };
	int fd = open_rtxg(), err;

	if (flags & RTXG_IRQ_F_SOURCE) {
		find_pci(0x1234, 0x11e8, 0, &request.bus, &request.devfn);
		request.offset = RTXG_EDU_REG_IRQ_STATUS;
		request.mask = RTXG_EDU_IRQ_COMPLETE;
		request.width = 4;
	}
	err = call(fd, RTXG_IOC_IRQ_ATTACH, &request);
	close(fd);
	return err;
}

/* A device's registers are as closed as their files in sysfs; interrupts without them are not. */
static void test_registers_are_closed(void)
{
	int fd, err;

	mount("security", "/sys/kernel/security", "securityfs", 0, NULL);
	fd = open(LOCKDOWN, O_WRONLY);
	if (fd < 0)
		skip("the kernel knows no lockdown");
	err = attach(RTXG_IRQ_F_SOURCE);
	check(!err, "before: %d", err);
	check(write(fd, "confidentiality", 15) == 15, "the kernel cannot be locked down");
	close(fd);
	err = attach(RTXG_IRQ_F_SOURCE);
	check(err == -EPERM, "a register of a locked down kernel: %d", err);
	err = attach(0);
	check(!err, "no register: %d", err);
}

/* As far as the CPUs have gone, and back. False: this kernel cannot. */
static bool suspend_for_a_moment(void)
{
	char text[64];

	if (access("/sys/power/pm_test", W_OK) ||
	    !read_text("/sys/power/state", text, sizeof(text)) || !strstr(text, "mem") ||
	    !read_text("/sys/power/mem_sleep", text, sizeof(text)) || !strstr(text, "deep"))
		return false;
	check(!shell("echo deep >/sys/power/mem_sleep; echo processors >/sys/power/pm_test; "
		     "echo 0 >/sys/module/suspend/parameters/pm_test_delay; "
		     "echo mem >/sys/power/state"),
	      "no suspend");
	check(!shell("echo none >/sys/power/pm_test"), "pm_test");
	return true;
}

/* The CPUs that go for a suspend come back before a task goes on: it is where it was. */
static void test_a_suspend_moves_nothing(void)
{
	struct rtxg_cpu_task params = { .size = sizeof(params),
					.policy = RTXG_CPU_EDF,
					.period_ns = 100000000 },
			     now = params;
	struct rtxg_cpu_stats stats = { .size = sizeof(stats) };
	uint64_t second = 2, out = 0;
	cpu_set_t mask;
	int fd = open_rtxg();

	now.pid = params.pid = idle_child();
	params.flags = RTXG_CPU_F_PARTITIONED | RTXG_CPU_F_CPU;
	params.cpu = 1;
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach");
	params.pid = idle_child();
	params.flags = RTXG_CPU_F_CLUSTER;
	params.set = (uintptr_t)&second;
	params.set_size = sizeof(second);
	check(!call(fd, RTXG_IOC_CPU_ATTACH, &params), "attach to a cluster");
	bool suspended = suspend_for_a_moment();

	stats.pid = now.pid;
	check(!call(fd, RTXG_IOC_CPU_STATS, &stats), "stats");
	check(stats.cpu == 1, "on CPU %u", stats.cpu);
	sched_getaffinity(now.pid, sizeof(mask), &mask);
	check(CPU_COUNT(&mask) == 1 && CPU_ISSET(1, &mask), "not on CPU 1 alone");
	end_child(now.pid);
	now.pid = params.pid;
	now.set = (uintptr_t)&out;
	now.set_size = sizeof(out);
	check(!call(fd, RTXG_IOC_CPU_GET, &now), "get");
	check(out == 2, "in a cluster of %llx", (unsigned long long)out);
	end_child(now.pid);
	close(fd);
	if (!suspended)
		skip("this kernel or machine has no suspend to memory, or no test of it");
}

int main(void)
{
	static const struct ktap_case cases[] = {
		/* here, since the display of t_virtio stood still after a suspend */
		{ "a_suspend_moves_nothing", test_a_suspend_moves_nothing },
		{ "registers_are_closed", test_registers_are_closed },
	};

	load_module();
	return RUN(cases);
}
