// SPDX-License-Identifier: MIT
/*
 * open.c - a GPU task begins and ends: its options, what the environment adds to them, and which
 * host manages it. May not launch.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "cpu.h"
#include "errors.h"
#include "handle.h"
#include "mutex.h"
#include "locate.h"
#include "open.h"
#include "process.h"

static int copy_name(char *to, const char *from, const char *what)
{
	size_t length;

	if (!from)
		return 0;
	length = strlen(from);
	if (!length || length > RTXG_NAME_MAX)
		return rtx_lib_failed(-EINVAL,
				      "%s name \"%.80s\" has %zu bytes; 1 to %u are accepted", what,
				      from, length, RTXG_NAME_MAX);
	memcpy(to, from, length + 1);
	return 0;
}

int rtx_lib_check_options(const struct rtx_gpu_options *in, struct rtx_gpu_options *out)
{
	static const unsigned int known = RTX_OPEN_NO_SPAWN | RTX_OPEN_UNMANAGED;

	*out = RTX_INIT(struct rtx_gpu_options);
	if (!in)
		return 0;
	if (in->size < offsetof(struct rtx_gpu_options, device) + sizeof(in->device))
		return rtx_lib_failed(
			-EINVAL, "options.size is %zu; set it to sizeof(struct rtx_gpu_options)",
			in->size);
	/*
	 * A newer program's larger struct is welcome as long as it asks for nothing that we do not
	 * know.
	 */
	for (size_t i = sizeof(*out); i < in->size; i++)
		if (((const unsigned char *)in)[i])
			return rtx_lib_failed(
				-E2BIG,
				"options has a member that this librtxg does not know (byte "
				"%zu is not 0)",
				i);
	memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
	out->size = sizeof(*out);
	if (out->priority > 99)
		return rtx_lib_failed(
			-EINVAL,
			"priority %u is out of range; 1 to 99 are accepted, 0 = as configured",
			out->priority);
	if (out->flags & ~known)
		return rtx_lib_failed(-EINVAL, "options.flags has unknown bits (0x%x)",
				      out->flags & ~known);
	return 0;
}

/* What `rtxg run` asks for on behalf of a program that asks for nothing itself. */
static int options_from_environment(struct rtx_gpu_options *out)
{
	uint64_t priority = out->priority;
	const struct {
		const char *name;
		uint64_t *value;
		uint64_t max;
	} variables[] = {
		{ "RTXG_PRIORITY", &priority, 99 },
		{ "RTXG_RUNTIME_NS", &out->runtime_ns, INT64_MAX },
		{ "RTXG_DEADLINE_NS", &out->deadline_ns, INT64_MAX },
		{ "RTXG_PERIOD_NS", &out->period_ns, INT64_MAX },
	};

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *text = secure_getenv(variables[i].name);
		unsigned long long value;
		char *end;

		if (*variables[i].value || !text || !*text)
			continue;
		errno = 0;
		value = strtoull(text, &end, 10);
		if (errno || *end || *text < '0' || *text > '9' || value > variables[i].max)
			return rtx_lib_failed(
				-EINVAL, "%s is \"%s\"; a whole number up to %llu is accepted",
				variables[i].name, text, (unsigned long long)variables[i].max);
		*variables[i].value = value;
	}
	out->priority = (unsigned int)priority;
	return 0;
}

/* The module if it is loaded, else the daemon; RTXG_HOST=module|daemon insists on one. */
static int open_host(struct rtx_gpu *h, struct cpu_request *cpu)
{
	const char *wanted = rtx_lib_host_wanted();
	bool any = !strcmp(wanted, "auto");
	int ret = -ECONNREFUSED;

	if (!any && strcmp(wanted, "module") && strcmp(wanted, "daemon"))
		return rtx_lib_failed(
			-EINVAL,
			"RTXG_HOST is \"%s\"; \"module\", \"daemon\" and \"auto\" are accepted",
			wanted);
	if (rtx_lib_module_hosts()) {
		h->transport = &rtx_lib_transport_module;
		ret = h->transport->open(h, cpu);
		if (!any || ret != -ENOTSUP)
			return ret;
	}
	h->transport = &rtx_lib_transport_daemon;
	return h->transport->open(h, cpu);
}

int rtx_lib_open(rtx_gpu_t *handle, const struct rtx_gpu_options *options, struct cpu_request *cpu)
{
	struct rtx_gpu *h;
	const char *vgpu;
	int ret;

	rtx_lib_forget_error();
	if (!handle)
		return rtx_lib_failed(-EINVAL,
				      "there is no place for the handle: the pointer is NULL");
	*handle = NULL;
	ret = rtx_lib_process_init();
	if (ret)
		return ret;
	h = calloc(1, sizeof(*h));
	if (!h)
		return rtx_lib_failed(-ENOMEM, "there is no memory for a handle");
	h->socket = h->doorbell = h->page_fd = -1;
	ret = rtx_lib_check_options(options, &h->options);
	if (!ret)
		ret = options_from_environment(&h->options);
	if (ret)
		goto fail;
	vgpu = h->options.vgpu ? h->options.vgpu : secure_getenv("RTXG_VGPU");
	if (vgpu && !*vgpu)
		vgpu = NULL;
	ret = copy_name(h->device, h->options.device, "device");
	if (!ret)
		ret = copy_name(h->vgpu, vgpu, "vGPU");
	if (ret)
		goto fail;
	h->vgpu_named = h->vgpu[0];
	h->options.device = h->options.vgpu = NULL; /* the copies count from here on */
	rtx_lib_mutex_init(&h->control);

	ret = open_host(h, cpu);
	h->managed = !ret;
	if (ret == -ECONNREFUSED && (h->options.flags & RTX_OPEN_UNMANAGED)) {
		h->transport = &rtx_lib_transport_none;
		ret = h->transport->open(h, NULL);
	}
	if (ret)
		goto fail;
	/* A child shall not even be able to touch the page. */
	madvise(h->page, RTXG_PAGE_SIZE, MADV_DONTFORK);
	h->page_flags = h->page->flags;
	h->checked_ns = h->gone_ns = rtxg_now_ns();
	rtx_lib_handle_register(h);
	*handle = h;
	return 0;
fail:
	free(h);
	return ret;
}

int rtx_gpu_open(rtx_gpu_t *handle, const struct rtx_gpu_options *options)
{
	return rtx_lib_open(handle, options, NULL);
}

int rtx_gpu_close(rtx_gpu_t h)
{
	int ret;

	rtx_lib_forget_error();
	ret = rtx_lib_check_handle(h, 0);
	if (ret == -ECHILD) {
		/* Before, it stands in the list of a child that was told nothing. */
		rtx_lib_process_forget_handles();
		free(h);
		return ret;
	}
	if (ret)
		return ret;
	rtx_lib_handle_unregister(h);
	/* Threads that still wait in it are sent away first, with -ECANCELED. */
	store(&h->closing, true);
	while (load(&h->users)) {
		for (unsigned int i = 0; i < LANES; i++)
			h->transport->wake(h, i);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	h->transport->close(h);
	pthread_mutex_destroy(&h->control);
	free(h);
	return 0;
}
