// SPDX-License-Identifier: MIT
/*
 * device.c - which GPU of rtxg an OpenCL device is, and opening it once for the process.
 *
 * Every process has to compute the same name for the same device, or two programs would be
 * scheduled as if they used two GPUs. So the name is the PCI address where the platform reports
 * one, else platform, device name and the place among devices of that name, in lower case with
 * everything else than letters and digits turned into '-'.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

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

static struct layer_gpu *gpus;
static char ungated[64]; /* by which call commands pass without permits; "": by none */
static bool ungated_said;
static atomic_bool in_part; /* that is so */
/*
 * Held while a GPU is opened, which may start a daemon; never while the monitor's lock is wanted by
 * a command.
 */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

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

static bool has_extension(cl_device_id device, const char *extension)
{
	size_t size = 0;
	char *all;
	bool found = false;

	if (layer_next.clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, NULL, &size) || !size)
		return false;
	all = malloc(size + 1);
	if (!all)
		return false;
	if (!layer_next.clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, size, all, NULL)) {
		char *save = NULL;

		all[size] = 0;
		for (char *word = strtok_r(all, " ", &save); word && !found;
		     word = strtok_r(NULL, " ", &save))
			found = !strcmp(word, extension);
	}
	free(all);
	return found;
}

static bool pci_address(cl_device_id device, char *name, size_t size)
{
	cl_device_pci_bus_info_khr pci;
	cl_uint domain = 0, bus, slot;

	if (has_extension(device, "cl_khr_pci_bus_info") &&
	    !layer_next.clGetDeviceInfo(device, CL_DEVICE_PCI_BUS_INFO_KHR, sizeof(pci), &pci,
					NULL)) {
		snprintf(name, size, "%04x:%02x:%02x.%x", pci.pci_domain, pci.pci_bus,
			 pci.pci_device, pci.pci_function);
		return true;
	}
	if (has_extension(device, "cl_nv_device_attribute_query") &&
	    !layer_next.clGetDeviceInfo(device, DEVICE_PCI_BUS_ID_NV, sizeof(bus), &bus, NULL) &&
	    !layer_next.clGetDeviceInfo(device, DEVICE_PCI_SLOT_ID_NV, sizeof(slot), &slot, NULL)) {
		if (layer_next.clGetDeviceInfo(device, DEVICE_PCI_DOMAIN_ID_NV, sizeof(domain),
					       &domain, NULL))
			domain = 0;
		/* The slot holds device and function as in the PCI configuration address. */
		snprintf(name, size, "%04x:%02x:%02x.%x", domain, bus, slot >> 3, slot & 7);
		return true;
	}
	return false;
}

/* The root device: a sub-device runs on the same hardware as its parent. */
static cl_device_id root_of(cl_device_id device)
{
	for (int depth = 0; depth < 16; depth++) {
		cl_device_id parent = NULL;

		if (layer_next.clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE,
					       sizeof(cl_device_id), &parent, NULL) ||
		    !parent)
			break;
		device = parent;
	}
	return device;
}

/*
 * The name under which rtxg knows the device. 0 or -ENODEV if the platform does not answer.
 */
static int layer_device_name(cl_device_id device, char *name, size_t size)
{
	char raw[256] = "", platform_name[96], device_name_[96];
	cl_platform_id platform = NULL;
	cl_device_id list[64];
	cl_uint count = 0;
	unsigned int index = 0;

	device = root_of(device);
	if (pci_address(device, name, size))
		return 0;
	if (layer_next.clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(cl_platform_id),
				       &platform, NULL) ||
	    layer_next.clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(raw) - 1, raw, NULL))
		return -ENODEV;
	normalise(raw, platform_name, sizeof(platform_name));
	memset(raw, 0, sizeof(raw));
	if (layer_next.clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof(raw) - 1, raw, NULL))
		return -ENODEV;
	normalise(raw, device_name_, sizeof(device_name_));

	if (!layer_next.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 64, list, &count)) {
		for (cl_uint i = 0; i < count && i < 64 && list[i] != device; i++) {
			char other[256] = "";

			if (!layer_next.clGetDeviceInfo(list[i], CL_DEVICE_NAME, sizeof(other) - 1,
							other, NULL) &&
			    !strcmp(other, raw))
				index++;
		}
	}
	snprintf(raw, sizeof(raw), "opencl:%s:%s#%u", platform_name, device_name_, index);
	shorten(raw, name, size);
	return 0;
}

/* A host was there, and said no to what was asked for. */
static bool is_refusal(int error)
{
	return error == -EACCES || error == -EPERM || error == -ENOENT || error == -ENODEV ||
	       error == -EINVAL;
}

/* Without a host programs run, unless it was said that they do not; who is refused does not run. */
static bool fail_closed(int error)
{
	const char *policy = getenv("RTXG_FAIL");

	if (!policy || !*policy)
		return is_refusal(error);
	if (!strcmp(policy, "open"))
		return false;
	if (strcmp(policy, "closed"))
		fprintf(stderr,
			"rtxg: RTXG_FAIL=%s: \"open\" or \"closed\" expected; taken as closed\n",
			policy);
	return true;
}

/* Under the lock. A program that is not managed at all has been told that. */
static void say_ungated(void)
{
	bool managed = false;

	for (struct layer_gpu *gpu = gpus; gpu && ungated[0]; gpu = gpu->next)
		if (gpu->handle)
			managed |= !rtx_gpu_ungated(gpu->handle);
	if (managed && !ungated_said)
		fprintf(stderr,
			"rtxg: %s: managed in part: what it enqueues by %s passes ungated\n",
			program_invocation_short_name, ungated);
	ungated_said |= managed;
}

bool layer_device_in_part(void)
{
	return atomic_load_explicit(&in_part, memory_order_relaxed);
}

void layer_device_ungated(const char *call)
{
	pthread_mutex_lock(&open_lock);
	atomic_store(&in_part, true);
	if (!ungated[0])
		snprintf(ungated, sizeof(ungated), "%s", call);
	say_ungated();
	pthread_mutex_unlock(&open_lock);
}

struct layer_gpu *layer_device_gpu(cl_device_id device)
{
	struct rtx_gpu_options options = RTX_INIT(struct rtx_gpu_options);
	char name[256];
	struct layer_gpu *gpu;
	int err;

	if (layer_device_name(device, name, sizeof(name)))
		snprintf(name, sizeof(name), "opencl:unknown");
	pthread_mutex_lock(&open_lock);
	for (gpu = gpus; gpu; gpu = gpu->next)
		if (!strcmp(gpu->name, name))
			goto out;
	gpu = calloc(1, sizeof(*gpu));
	if (!gpu)
		goto out;
	snprintf(gpu->name, sizeof(gpu->name), "%s", name);
	for (int e = 0; e < LAYER_ENGINES; e++) {
		gpu->lanes[e].gpu = gpu;
		gpu->lanes[e].engine = (enum rtx_engine)e;
	}
	options.device = gpu->name;
	err = rtx_gpu_open(&gpu->handle, &options);
	if (err) {
		bool closed = fail_closed(err);
		const char *why = rtx_strerror();

		gpu->handle = NULL;
		gpu->refused = closed;
		fprintf(stderr, "rtxg: %s: cannot manage %s: %s; %s\n",
			program_invocation_short_name, name, why && *why ? why : strerror(-err),
			closed && is_refusal(err)
				? "its queues are refused (RTXG_FAIL=open would run UNMANAGED)"
			: closed	  ? "its queues are refused (RTXG_FAIL=closed)"
			: is_refusal(err) ? "running UNMANAGED because refused (RTXG_FAIL=open)"
					  : "running UNMANAGED (RTXG_FAIL=closed would refuse)");
	}
	gpu->next = gpus;
	gpus = gpu;
	say_ungated();
out:
	pthread_mutex_unlock(&open_lock);
	return gpu;
}

/* In a forked child: the parent's handles are not ours. */
void layer_device_after_fork(void)
{
	pthread_mutex_init(&open_lock, NULL);
	gpus = NULL;
}
