// SPDX-License-Identifier: MIT
/*
 * fake_nvml.c - the few functions of NVIDIA's management library that rtxg-gpumem calls, as those
 * of driver 615 are: limits of cgroups, kept in a file of the test's. Never installed.
 *
 * $RTXG_FAKE_NVML: the file; a line "PCI FOLDER SOFT HARD" for each call that sets. What
 * $RTXG_FAKE_NVML.fail holds is what the functions answer (3: not supported); "hang": they do
 * not, as long as it holds that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct limits {
	const char *folder;
	unsigned long long soft, hard, used;
};

struct device {
	char pci[32];
};

static struct device device;

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int error);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **handle);
int nvmlDeviceSetMemoryLimits_v1(void *handle, struct limits *limits);
int nvmlDeviceGetMemoryLimits_v1(void *handle, struct limits *limits);

static const char *file(void)
{
	return getenv("RTXG_FAKE_NVML");
}

static int fault(void)
{
	char path[512], text[16];
	FILE *f;

	snprintf(path, sizeof(path), "%s.fail", file());
	for (;;) {
		f = fopen(path, "re");
		if (!f)
			return 0;
		if (!fgets(text, sizeof(text), f))
			*text = 0;
		fclose(f);
		if (strncmp(text, "hang", 4))
			return atoi(text);
		usleep(20000);
	}
}

int nvmlInit_v2(void)
{
	return file() ? 0 : 9;
}

int nvmlShutdown(void)
{
	return 0;
}

const char *nvmlErrorString(int error)
{
	return error == 3 ? "Not Supported" : error == 6 ? "Not Found" : "Unknown Error";
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **handle)
{
	if (!strstr(pci, ":"))
		return 6;
	snprintf(device.pci, sizeof(device.pci), "%s", pci);
	*handle = &device;
	return 0;
}

int nvmlDeviceSetMemoryLimits_v1(void *handle, struct limits *limits)
{
	int error = fault();
	FILE *f;

	if (error)
		return error;
	f = fopen(file(), "ae");
	if (!f)
		return 999;
	fprintf(f, "%s %s %llu %llu\n", device.pci, limits->folder, limits->soft, limits->hard);
	return fclose(f) ? 999 : 0;
}

/* The last that was set. */
int nvmlDeviceGetMemoryLimits_v1(void *handle, struct limits *limits)
{
	unsigned long long soft, hard;
	char pci[32], folder[400];
	FILE *f = fopen(file(), "re");
	int error = 6;

	while (f && fscanf(f, "%31s %399s %llu %llu", pci, folder, &soft, &hard) == 4)
		if (!strcmp(pci, device.pci) && !strcmp(folder, limits->folder)) {
			limits->soft = soft;
			limits->hard = hard;
			limits->used = 0;
			error = 0;
		}
	if (f)
		fclose(f);
	return error;
}
