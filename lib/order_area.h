/* SPDX-License-Identifier: MIT */
/*
 * order_area.h - the memory that `rtxg order record` and `rtxg order run` share with the program
 * that they start: what to do, and what came of it. It outlives the program, however the program
 * ends. The program may write anything into it: what is read from it afterwards is checked. Not
 * installed.
 *
 * Its descriptor is in the environment variable RTXG_ORDER_FD. The program that is meant takes it
 * out; programs before it, such as a shell script that starts it, leave it there.
 */
#ifndef RTX_LIB_ORDER_AREA_H
#define RTX_LIB_ORDER_AREA_H

#include <stdint.h>

#include "order_file.h"

#define AREA_ENVIRONMENT "RTXG_ORDER_FD"
#define AREA_MAGIC	 0x7278746f72646572ull
#define AREA_VERSION	 2u
#define AREA_MODULES	 64u

enum area_mode { AREA_RECORD = 1, AREA_RUN = 2 };

/* A part of the program's memory whose accesses count, as the program's file numbers it. */
struct area_range {
	uint64_t low, high;
};

struct area_module {
	uint64_t base;
	char path[248];
};

struct area_thread {
	char name[RTX_ORDER_NAME];
	int32_t tid;
	uint32_t accesses; /* made, out */
	uint32_t most;	   /* RUN: those that the order knows */
	/* RECORD, out: it came to its end. RUN, in: the record ended before it did */
	uint32_t ended, cut;
};

enum area_kind {
	AREA_READ,
	AREA_WRITE,
	AREA_LOCK,
	AREA_UNLOCK,
	AREA_TRY,
	AREA_WAIT,
	AREA_SIGNAL,
	AREA_KINDS,
};

/* One access, at its place in the order of all. kind 0 with size 0: was never written. */
struct area_event {
	uint64_t address;
	uint64_t code; /* where the program made it */
	uint32_t thread;
	uint32_t number;
	uint32_t size;
	uint32_t kind; /* enum area_kind */
};

struct area {
	uint64_t magic;
	uint32_t version;
	uint32_t mode;		/* enum area_mode */
	uint64_t size;		/* of all */
	uint64_t device, inode; /* of the program that is meant */
	uint64_t patience_ns;
	uint32_t host; /* enum rtx_order_host */
	uint32_t all;  /* every access but those to the thread's own stack */
	uint32_t locks;
	uint32_t others_free, others_last;
	uint32_t ranges;
	struct area_range range[RTX_ORDER_VARIABLES];
	/* RUN: the order. Offsets from the area's start */
	struct rtxg_order_shape shape;
	uint32_t reserved1;
	uint64_t entry_at, need_at;
	/* RECORD: room for events */
	uint64_t event_at, event_room;

	/* --- out --- */
	uint32_t attached; /* process */
	uint32_t modules;
	struct area_module module[AREA_MODULES];
	uint32_t threads;  /* RECORD: that made accesses; RUN: in */
	uint32_t too_many; /* RECORD: threads beyond what an order holds */
	uint32_t running;  /* RECORD: threads of the program that did not come to their end */
	uint32_t reserved2;
	struct area_thread thread[RTXG_ORDER_THREADS_MAX];
	uint64_t events; /* that wanted a place; more than event_room: the last ones are lost */
	uint64_t restricted, waits, sleeps, context_switches, signals, clocks;
	uint32_t broken;
	char words[500]; /* why it is broken, or why it could not begin */
};

#endif
