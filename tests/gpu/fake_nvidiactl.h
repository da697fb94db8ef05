/* SPDX-License-Identifier: MIT */
/*
 * fake_nvidiactl.h - a driver that is not there: answers the lever's calls as an H200 with driver 580 was seen to answer them, and can
 * be told to fail or to be slow. Its state lies in shared memory, so that a forked guardian acts on the same one.
 */
#ifndef RTXG_FAKE_NVIDIACTL_H
#define RTXG_FAKE_NVIDIACTL_H

#include <stdbool.h>
#include <stdint.h>
#include "journal.h"
#include "rm.h"

#define FAKE_CHANNELS 512
#define FAKE_RECORDS 65536
#define FAKE_SLICE_DEFAULT 2048

struct fake_channel {
	uint32_t client, handle, group;
	bool stopped, gone;
};

struct fake_driver {
	/* What it is to do */
	int open_error;		    /* opening /dev/nvidiactl fails with this errno */
	int gpus;		    /* /dev/nvidia0.. there are */
	uint32_t fail_command;	    /* a control that fails ... */
	uint32_t fail_status;	    /* ... with this status ... */
	uint32_t fail_after;	    /* ... after so many that succeed */
	uint32_t fail_class;	    /* an allocation that fails with fail_status */
	uint32_t fail_client;	    /* controls that name this client's channels fail with fail_status */
	uint64_t delay_ns;	    /* every control takes so long (of the fake's own clock) */
	int getfd_error;	    /* pidfd_getfd fails with this errno */
	struct nv_journal *watched; /* every channel that is being stopped must stand in it already */

	/* What it has seen */
	uint64_t now;
	uint32_t next_client;
	struct fake_channel channel[FAKE_CHANNELS];
	uint32_t channels;
	uint32_t slice_us, restarts, preempts, disables, biggest, unjournaled, foreign_fds, flushes;
	int open_fds;
	struct nv_event_buffer_header header;
	struct nv_fecs_record record[FAKE_RECORDS];
	uint32_t record_count, updated_get;
	uint16_t seqno;
};

extern struct fake_driver *fake;
extern const struct nv_sys fake_sys;

void fake_reset(void);
void fake_channel_add(uint32_t client, uint32_t handle, uint32_t group);
uint32_t fake_stopped(void);
/* Writes a record into the log, as the driver does. */
void fake_log(uint8_t tag, uint32_t pid, uint32_t cid, uint64_t at);

#endif
