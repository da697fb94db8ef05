// SPDX-License-Identifier: MIT
/*
 * t_zlockdown.c - what a locked down kernel refuses. The last of the programs by its name: a kernel
 * that was locked down stays so until the next boot, and loads no module that it does not trust.
 */
#include "rtxg_vm.h"

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

int main(void)
{
	static const struct ktap_case cases[] = {
		{ "registers_are_closed", test_registers_are_closed },
	};

	load_module();
	return RUN(cases);
}
