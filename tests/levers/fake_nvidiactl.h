/* SPDX-License-Identifier: MIT */
/*
 * fake_nvidiactl.h - a driver that is not there: answers the lever's calls as an H200 with driver
 * 580 was seen to answer them, and can be told to fail or to be slow. Its state lies in shared
 * memory, so that a forked guardian acts on the same one.
 */
#ifndef RTXG_FAKE_NVIDIACTL_H
#define RTXG_FAKE_NVIDIACTL_H

#include <stdbool.h>
#include <stdint.h>
#include "journal.h"
#include "needs.h"
#include "rm.h"

#define FAKE_CHANNELS	   1024
#define FAKE_RECORDS	   65536
#define FAKE_SLICE_DEFAULT 2048
#define FAKE_GPUS	   4
#define FAKE_OBJECTS	   256
#define FAKE_GPU_ID	   0x600u
#define FAKE_EPOCH	   5000000000000ull /* GPU time - CPU time */

#define FAKE_MEMORIES	  64
#define FAKE_MEMORY_BYTES 131072
#define FAKE_FAILURES	  8
#define FAKE_OTHER_USER	  4242u

struct fake_channel {
	uint32_t client, handle, group, gpu;
	uint32_t slice_us; /* of its group; 0 = never set */
	uint32_t stopped;  /* so often more than let go: the driver counts */
	bool gone;
};

/* A memory object of a process, in which its channels have their USERD. */
struct fake_memory_object {
	uint32_t client, handle, class_id, gpu;
	uint32_t size;	    /* bytes */
	uint32_t shared_to; /* client that may duplicate it */
	uint32_t dups, maps;
	bool freed;
	uint8_t bytes[FAKE_MEMORY_BYTES] __attribute__((aligned(8)));
};

/* A control that fails: which, whose, from when, how often, until when. */
struct fake_failure {
	uint32_t command; /* 0: any; an escape's number for what is no control */
	uint32_t client;  /* 0: any; else controls on its objects or that name its channels */
	uint32_t status;
	uint32_t after;	   /* so many succeed first */
	uint32_t times;	   /* then so many fail; 0: without end */
	uint64_t until_ns; /* of the fake's clock; 0: without end */
	/* a stop that fails has stopped so many of its list; 0: what stands before */
	uint32_t though_done;
	uint32_t failed; /* how many did */
};

/* A duplicate of another client's channel group. */
struct fake_duplicate {
	uint32_t client, handle, of_client, of;
};

/* Something that a process allocated before the lever came, for adoption to find. */
struct fake_object {
	uint32_t pid, client, handle, parent, class_id, gpu, cid;
};

struct fake_log {
	struct nv_event_buffer_header header;
	struct nv_fecs_record record[FAKE_RECORDS];
	uint32_t record_count;
	uint16_t seqno;
};

struct fake_driver {
	/* What it is to do */
	int open_error; /* opening /dev/nvidiactl fails with this errno */
	int gpus;	/* /dev/nvidia0.. there are */
	/* the GPU that the driver names first comes last on the PCI bus */
	bool reversed;
	bool one_bus;		/* all GPUs are on one bus, each in a slot of its own */
	bool real_time;		/* its clock is the machine's */
	uint32_t mig;		/* bit for each GPU in MIG mode */
	bool silent_subdevices; /* a subdevice does not say which GPU it is of */
	uint32_t lacks;		/* a control that it does not know, if it is only asked */
	uint32_t fail_command;	/* a control that fails ... */
	uint32_t fail_status;	/* ... with this status ... */
	uint32_t fail_after;	/* ... after so many that succeed */
	uint32_t fail_class;	/* an allocation that fails with fail_status */
	/* controls that name this client's channels fail with fail_status */
	uint32_t fail_client;
	uint32_t owner_from;   /* pids from this one on are FAKE_OTHER_USER's; 0: none is */
	uint32_t dead;	       /* a pid that is no process any more */
	uint32_t no_memory_of; /* the pid whose memory it does not say */
	/* every control takes so long (of the fake's own clock) */
	uint64_t delay_ns;
	struct fake_failure failure[FAKE_FAILURES];
	uint32_t failures;
	int list_error;	    /* of the lists of descriptors; 0: none */
	uint64_t list_ns;   /* each of them takes so long */
	int getfd_error;    /* pidfd_getfd fails with this errno, */
	uint32_t getfd_pid; /* of this process only; 0: of each */
	/* this process has moved its descriptor 7 there; 0: none has */
	uint32_t moved_pid;
	int moved_to;
	/* every channel that is being stopped must stand in it already */
	struct nv_journal *watched;

	/* What it has seen */
	uint64_t now;
	uint64_t longest_beat; /* of `watched`: fake_look_at_beat() */
	uint32_t next_client;
	struct fake_channel channel[FAKE_CHANNELS];
	uint32_t channels;
	struct fake_duplicate duplicate[16];
	uint32_t duplicates;
	uint32_t slice_us, restarts, preempts, disables, leaves, biggest, unjournaled, foreign_fds,
		flushes, memory_asked;
	uint64_t calls; /* ioctls in all */
	uint64_t lists; /* of descriptors */
	int open_fds;
	struct fake_memory_object memory[FAKE_MEMORIES];
	uint32_t memories, wild_maps;
	struct {
		uint32_t handle, memory;
	} dup[FAKE_OBJECTS];
	int64_t gpu_ahead; /* the GPU's clock has jumped by that */
	uint64_t compared; /* how often it was compared with the CPU's */
	struct fake_log log[FAKE_GPUS];
	uint32_t last_log; /* GPU of the buffer that was made last */
	uint32_t updated_get;
	struct fake_object object[FAKE_OBJECTS];
	uint32_t objects;
	/* the lever's; by the driver's number of the GPU */
	uint32_t own_device[FAKE_GPUS], own_subdevice[FAKE_GPUS];
	uint32_t user[32]; /* pids that pidfds were opened for */
	uint32_t users;
	uint32_t wrong_gpu; /* channels named on another GPU's subdevice */
};

extern struct fake_driver *fake;
extern const struct nv_sys fake_sys;
const struct nv_sys *fake_sys_patient(void); /* in place of nv_sys_patient() */

void fake_reset(void);
/* What it answers when it is asked how much memory a process has in use. */
uint64_t fake_memory(uint32_t gpu, uint32_t pid);
/* gpu: the driver's number (device instance), here and below */
void fake_channel_add(uint32_t gpu, uint32_t client, uint32_t handle, uint32_t group);
void fake_object_add(uint32_t pid, uint32_t client, uint32_t parent, uint32_t handle,
		     uint32_t class_id, uint32_t gpu, uint32_t cid);
/* A client has duplicated another one's group, as clients of MPS do with their server's. */
void fake_group_dup(uint32_t client, uint32_t handle, uint32_t of_client, uint32_t of);
uint32_t fake_stopped(void);
/* The driver has freed this client with all its channels, its memory and its objects. */
void fake_gone(uint32_t client);
/* The slice of the group of this client's first channel; 0: never set. */
uint32_t fake_slice(uint32_t client);
/* As a program does it by itself. */
void fake_set_slice(uint32_t client, uint32_t us);
/* Adds a failure; the fields of which are as in struct fake_failure. */
struct fake_failure *fake_fail(uint32_t command, uint32_t client, uint32_t status);
/* A memory object of a process; returns it. */
struct fake_memory_object *fake_memory_add(uint32_t gpu, uint32_t client, uint32_t handle,
					   uint32_t class_id, uint32_t size);
/* What a program (put) and the GPU (get) write for the channel whose USERD is there. */
void fake_queue(struct fake_memory_object *m, uint32_t offset, uint32_t get, uint32_t put);
/* Duplicates and mappings of programs' memory that there are now. */
uint32_t fake_dups(void);
uint32_t fake_maps(void);
/* Writes a record into the log, as the driver does. */
void fake_log(uint8_t tag, uint32_t pid, uint32_t cid, uint64_t at);
void fake_log_on(uint32_t gpu, uint8_t tag, uint32_t pid, uint32_t cid, uint64_t at);

#endif
