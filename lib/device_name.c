// SPDX-License-Identifier: MIT
/*
 * device_name.c - which GPU of rtxg an OpenCL device is.
 *
 * Every process has to compute the same name for the same device, or two programs would be
 * scheduled as if they used two GPUs. So the name is the PCI address where the platform reports
 * one, else platform, device name and the place among devices of that name, in lower case with
 * everything else than letters and digits turned into '-'. rtxgd computes it too, to know which
 * names are of devices.
 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_name.h"

#ifndef CL_DEVICE_PCI_BUS_INFO_KHR
#define CL_DEVICE_PCI_BUS_INFO_KHR 0x410F
typedef struct _cl_device_pci_bus_info_khr {
	cl_uint pci_domain;
	cl_uint pci_bus;
	cl_uint pci_device;
	cl_uint pci_function;
} cl_device_pci_bus_info_khr;
#endif
#define DEVICE_PCI_BUS_ID_NV	0x4008
#define DEVICE_PCI_SLOT_ID_NV	0x4009
#define DEVICE_PCI_DOMAIN_ID_NV 0x400A

#define NAME_MAX_BYTES 63

static void normalise(const char *from, char *to, size_t size)
{
	size_t n = 0;

	for (; *from && n + 1 < size; from++) {
		char c = isalnum((unsigned char)*from) ? (char)tolower((unsigned char)*from) : '-';

		if (c == '-' && (n == 0 || to[n - 1] == '-'))
			continue;
		to[n++] = c;
	}
	while (n > 0 && to[n - 1] == '-')
		n--;
	to[n] = 0;
}

/*
 * A host takes names of at most 63 bytes: of a longer one its beginning and a checksum (FNV-1a) of
 * the whole.
 */
static void shorten(const char *from, char *to, size_t size)
{
	uint32_t sum = 2166136261u;

	if (strlen(from) <= NAME_MAX_BYTES) {
		snprintf(to, size, "%s", from);
		return;
	}
	for (const char *c = from; *c; c++)
		sum = (sum ^ (unsigned char)*c) * 16777619u;
	snprintf(to, size, "%.*s~%08x", NAME_MAX_BYTES - 9, from, sum);
}

static bool has_extension(const cl_icd_dispatch *next, cl_device_id device, const char *extension)
{
	size_t size = 0;
	char *all;
	bool found = false;

	if (next->clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, NULL, &size) || !size)
		return false;
	all = malloc(size + 1);
	if (!all)
		return false;
	if (!next->clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, size, all, NULL)) {
		char *save = NULL;

		all[size] = 0;
		for (char *word = strtok_r(all, " ", &save); word && !found;
		     word = strtok_r(NULL, " ", &save))
			found = !strcmp(word, extension);
	}
	free(all);
	return found;
}

static bool pci_address(const cl_icd_dispatch *next, cl_device_id device, char *name, size_t size)
{
	cl_device_pci_bus_info_khr pci;
	cl_uint domain = 0, bus, slot;

	if (has_extension(next, device, "cl_khr_pci_bus_info") &&
	    !next->clGetDeviceInfo(device, CL_DEVICE_PCI_BUS_INFO_KHR, sizeof(pci), &pci, NULL)) {
		snprintf(name, size, "%04x:%02x:%02x.%x", pci.pci_domain, pci.pci_bus,
			 pci.pci_device, pci.pci_function);
		return true;
	}
	if (has_extension(next, device, "cl_nv_device_attribute_query") &&
	    !next->clGetDeviceInfo(device, DEVICE_PCI_BUS_ID_NV, sizeof(bus), &bus, NULL) &&
	    !next->clGetDeviceInfo(device, DEVICE_PCI_SLOT_ID_NV, sizeof(slot), &slot, NULL)) {
		if (next->clGetDeviceInfo(device, DEVICE_PCI_DOMAIN_ID_NV, sizeof(domain), &domain,
					  NULL))
			domain = 0;
		/* The slot holds device and function as in the PCI configuration address. */
		snprintf(name, size, "%04x:%02x:%02x.%x", domain, bus, slot >> 3, slot & 7);
		return true;
	}
	return false;
}

/* The root device: a sub-device runs on the same hardware as its parent. */
static cl_device_id root_of(const cl_icd_dispatch *next, cl_device_id device)
{
	for (int depth = 0; depth < 16; depth++) {
		cl_device_id parent = NULL;

		if (next->clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof(cl_device_id),
					  &parent, NULL) ||
		    !parent)
			break;
		device = parent;
	}
	return device;
}

int rtx_lib_device_name(const cl_icd_dispatch *next, cl_device_id device, char *name, size_t size)
{
	char raw[256] = "", platform_name[96], device_name_[96];
	cl_platform_id platform = NULL;
	cl_device_id list[64];
	cl_uint count = 0;
	unsigned int index = 0;

	device = root_of(next, device);
	if (pci_address(next, device, name, size))
		return 0;
	if (next->clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(cl_platform_id), &platform,
				  NULL) ||
	    next->clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(raw) - 1, raw, NULL))
		return -ENODEV;
	normalise(raw, platform_name, sizeof(platform_name));
	memset(raw, 0, sizeof(raw));
	if (next->clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof(raw) - 1, raw, NULL))
		return -ENODEV;
	normalise(raw, device_name_, sizeof(device_name_));

	if (!next->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 64, list, &count)) {
		for (cl_uint i = 0; i < count && i < 64 && list[i] != device; i++) {
			char other[256] = "";

			if (!next->clGetDeviceInfo(list[i], CL_DEVICE_NAME, sizeof(other) - 1,
						   other, NULL) &&
			    !strcmp(other, raw))
				index++;
		}
	}
	snprintf(raw, sizeof(raw), "opencl:%s:%s#%u", platform_name, device_name_, index);
	shorten(raw, name, size);
	return 0;
}
