// SPDX-License-Identifier: MIT
/*
 * fecs.c - see fecs.h. It reads memory that the driver writes and that is mapped read-only; indices
 * found there are checked against the ring's size before they are used.
 */
#include <errno.h>
#include <string.h>
#include "fecs.h"

#define PAGE	      4096u
#define CALIBRATE_MAX 5000000ull /* no further reading after so long */
#define DRIFT	      10000u	 /* the clocks drift by less than such a part */

static int memory(struct nv_rm *rm, size_t size, uint32_t *handle)
{
	struct nv_memory_alloc a = {
		.attr = NV_ATTR_LOCATION_PCI | NV_ATTR_COHERENCY_CACHED,
		.attr2 = NV_ATTR2_USER_READ_ONLY,
		.size = size,
	};

	return nv_rm_alloc(rm, rm->client, handle, NV_CLASS_MEMORY_DEVICELESS, &a, sizeof(a));
}

int nv_fecs_open(struct nv_fecs *fecs, struct nv_rm_gpu *gpu, uint32_t count)
{
	return nv_fecs_open_detail(fecs, gpu, count, NV_FECS_LOD_SIMPLE);
}

int nv_fecs_open_detail(struct nv_fecs *fecs, struct nv_rm_gpu *gpu, uint32_t count,
			uint32_t detail)
{
	struct nv_rm *rm = gpu->rm;
	struct nv_event_buffer_alloc alloc = { 0 };
	struct nv_fecs_bind bind = { 0 };
	struct nv_enable_events enable = { .enable = 1, .flags = NV_EVENTS_KEEP_NEWEST };
	void *p;
	int err;

	memset(fecs, 0, sizeof(*fecs));
	fecs->header_fd = fecs->records_fd = -1;
	if (count < 64 || count > 65536 || (count & (count - 1)))
		return -EINVAL;
	fecs->gpu = gpu;
	fecs->count = count;
	fecs->header_size = PAGE;
	fecs->records_size = count * sizeof(struct nv_fecs_record);
	err = memory(rm, fecs->header_size, &fecs->h_header);
	if (!err)
		err = memory(rm, fecs->records_size, &fecs->h_records);
	if (err)
		goto fail;
	alloc.record_size = sizeof(struct nv_fecs_record);
	alloc.record_count = count;
	/* never 0: the driver looks the GPU up through it */
	alloc.subdevice = gpu->subdevice;
	alloc.h_header = fecs->h_header;
	alloc.h_records = fecs->h_records;
	err = nv_rm_alloc(rm, rm->client, &fecs->h_buffer, NV_CLASS_EVENT_BUFFER, &alloc,
			  sizeof(alloc));
	if (err)
		goto fail;
	err = nv_rm_map(rm, rm->client, fecs->h_header, fecs->header_size, &p, &fecs->header_fd);
	if (err)
		goto fail;
	fecs->header = p;
	err = nv_rm_map(rm, rm->client, fecs->h_records, fecs->records_size, &p, &fecs->records_fd);
	if (err)
		goto fail;
	fecs->records = p;
	err = nv_rm_control(rm, fecs->h_buffer, NV90CD_ENABLE_EVENTS, &enable, sizeof(enable));
	if (err)
		goto fail;
	bind.buffer = fecs->h_buffer;
	bind.record_size = sizeof(struct nv_fecs_record);
	bind.level = detail;
	bind.all_users = 1;
	err = nv_rm_control(rm, gpu->subdevice, NV2080_GR_FECS_BIND_EVTBUF_V2, &bind, sizeof(bind));
	fecs->reason = bind.reason;
	if (err)
		goto fail;
	fecs->get = fecs->told = fecs->header->put < count ? fecs->header->put : 0;
	return 0;
fail:
	nv_fecs_close(fecs);
	return err;
}

void nv_fecs_close(struct nv_fecs *fecs)
{
	const struct nv_sys *sys;
	struct nv_rm *rm;

	if (!fecs->gpu)
		return;
	rm = fecs->gpu->rm;
	sys = rm->sys;
	if (fecs->h_buffer)
		nv_rm_free(rm, rm->client, fecs->h_buffer);
	if (fecs->records)
		sys->munmap(sys->ctx, (void *)(uintptr_t)fecs->records, fecs->records_size);
	if (fecs->header)
		sys->munmap(sys->ctx, (void *)(uintptr_t)fecs->header, fecs->header_size);
	if (fecs->records_fd >= 0)
		sys->close(sys->ctx, fecs->records_fd);
	if (fecs->header_fd >= 0)
		sys->close(sys->ctx, fecs->header_fd);
	if (fecs->h_records)
		nv_rm_free(rm, rm->client, fecs->h_records);
	if (fecs->h_header)
		nv_rm_free(rm, rm->client, fecs->h_header);
	fecs->gpu = NULL;
	fecs->h_buffer = fecs->h_records = fecs->h_header = 0;
	fecs->records = NULL;
	fecs->header = NULL;
	fecs->header_fd = fecs->records_fd = -1;
}

int nv_fecs_flush(struct nv_fecs *fecs)
{
	return nv_rm_control(fecs->gpu->rm, fecs->h_buffer, NV90CD_FLUSH, NULL, 0);
}

int nv_fecs_read(struct nv_fecs *fecs, struct nv_fecs_event *events, int cap)
{
	uint32_t put = __atomic_load_n(&fecs->header->put, __ATOMIC_ACQUIRE);
	int n = 0, looked = 0;

	if (put >= fecs->count)
		return -EPROTO;
	while (fecs->get != put && n < cap) {
		struct nv_fecs_record r;

		memcpy(&r, (const void *)&fecs->records[fecs->get], sizeof(r));
		fecs->get = (fecs->get + 1) % fecs->count;
		looked++;
		if (fecs->started)
			fecs->lost += (uint16_t)(r.seqno - fecs->seqno - 1);
		fecs->started = 1;
		fecs->seqno = r.seqno;
		if (r.tag != NV_FECS_SIMPLE_START && r.tag != NV_FECS_SIMPLE_END &&
		    r.tag != NV_FECS_CONTEXT_START && r.tag != NV_FECS_SAVE_END)
			continue;
		events[n].gpu_ns = r.timestamp;
		events[n].pid = r.pid;
		events[n].context = r.context_id;
		events[n].start = r.tag == NV_FECS_SIMPLE_START || r.tag == NV_FECS_CONTEXT_START;
		n++;
	}
	/*
	 * The driver wants to know in time how much room it has, and each time is a call: not
	 * before all is read, for more would come meanwhile.
	 */
	if (looked && fecs->get == put &&
	    (fecs->get - fecs->told) % fecs->count >= fecs->count / 4) {
		struct nv_update_get update = { .record_get = fecs->get };

		fecs->told = fecs->get;

		nv_rm_control(fecs->gpu->rm, fecs->h_buffer, NV90CD_UPDATE_GET, &update,
			      sizeof(update));
	}
	return n;
}

/*
 * The new offset is known to half of `width`, the old one to half of what it was known to then and
 * what the clocks may have drifted since. The better one is taken, unless they cannot both be true:
 * then the GPU's clock has jumped.
 */
static bool is_better(const struct nv_fecs *fecs, int64_t offset_ns, uint64_t width, uint64_t now)
{
	uint64_t old = fecs->width_ns + (now - fecs->calibrated) / DRIFT;
	int64_t change = offset_ns - fecs->offset_ns;

	return !fecs->calibrated || width <= old ||
	       (uint64_t)(change < 0 ? -change : change) > (width + old) / 2;
}

int nv_fecs_calibrate(struct nv_fecs *fecs)
{
	const struct nv_sys *sys = fecs->gpu->rm->sys;
	uint64_t best = UINT64_MAX, began = sys->now_ns(sys->ctx), after = began;
	int64_t offset_ns = 0;
	int err = 0;

	/*
	 * The narrowest of a few readings: the GPU's time lies between two of ours. While other
	 * programs keep the driver busy each takes long, and says little.
	 */
	for (int i = 0; i < 8 && after - began < CALIBRATE_MAX; i++) {
		struct nv_gpu_cpu_time t = { .clock = NV_CPU_CLOCK_OSTIME, .count = 1 };
		uint64_t before = sys->now_ns(sys->ctx);

		err = nv_rm_control(fecs->gpu->rm, fecs->gpu->subdevice,
				    NV2080_TIMER_GET_GPU_CPU_TIME, &t, sizeof(t));
		after = sys->now_ns(sys->ctx);
		if (err)
			return err;
		if (after - before < best) {
			best = after - before;
			offset_ns =
				(int64_t)(before + (after - before) / 2) - (int64_t)t.sample[0].gpu;
		}
	}
	if (is_better(fecs, offset_ns, best, after)) {
		fecs->offset_ns = offset_ns;
		fecs->width_ns = best;
		fecs->calibrated = after;
	}
	return 0;
}
