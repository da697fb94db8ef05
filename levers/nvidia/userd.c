// SPDX-License-Identifier: MIT
/*
 * userd.c - see userd.h.
 */
#include <errno.h>
#include <string.h>
#include "userd.h"

_Static_assert(NV_USERD_GP_PUT == NV_USERD_GP_GET + 4 && !(NV_USERD_GP_GET & 7),
	       "both words in one read");

/*
 * A process names the object itself, so it may name anything that it owns. Only plain memory is
 * mapped: reading another thing (a device's registers, say) might do something.
 */
static int check_class(struct nv_rm_gpu *gpu, int fd, uint32_t client, uint32_t memory)
{
	struct nv_handle_info info = { .object = memory, .index = NV_HANDLE_INFO_CLASS };
	int err = nv_rm_control_foreign(gpu->rm, fd, client, client, NV0000_CLIENT_GET_HANDLE_INFO,
					&info, sizeof(info));

	if (err)
		return err;
	return info.result == NV_CLASS_MEMORY_LOCAL || info.result == NV_CLASS_MEMORY_SYSTEM
		       ? 0
		       : -EMEDIUMTYPE;
}

int nv_userd_open(struct nv_userd *userd, struct nv_rm_gpu *gpu, int fd, uint32_t client,
		  uint32_t memory, uint64_t first, uint64_t last)
{
	struct nv_userd u = { .client = client, .memory = memory };
	void *map;
	int err;

	memset(userd, 0, sizeof(*userd));
	u.start = first & ~(uint64_t)(NV_USERD_PAGE - 1);
	if (!nv_userd_valid(memory, first) || !nv_userd_valid(memory, last) || last < first ||
	    last - u.start + NV_USERD_PAGE > NV_USERD_SPAN)
		return -EINVAL;
	u.length = (last - u.start + NV_USERD_PAGE) & ~(uint64_t)(NV_USERD_PAGE - 1);
	err = check_class(gpu, fd, client, memory);
	if (!err)
		err = nv_rm_dup(gpu, fd, client, memory, &u.handle);
	if (err)
		return err;
	/* The driver checks the length against the object's; it maps whole pages. */
	err = nv_rm_map_part(gpu, u.handle, u.start, last - u.start + NV_USERD_END, &map);
	if (err) {
		nv_rm_free(gpu->rm, gpu->device, u.handle);
		return err;
	}
	u.map = map;
	*userd = u;
	return 0;
}

void nv_userd_close(struct nv_userd *userd, struct nv_rm_gpu *gpu)
{
	const struct nv_sys *sys = gpu->rm->sys;

	if (!userd->handle)
		return;
	sys->munmap(sys->ctx, (void *)(uintptr_t)userd->map, userd->length);
	nv_rm_free(gpu->rm, gpu->device, userd->handle);
	memset(userd, 0, sizeof(*userd));
}
