/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * discover.h - the records that the discovery program gives to user space: one record for each
 * event of an object of NVIDIA's resource manager (RM), or of a process that owns such an object.
 *
 * Shared by the BPF program and its loader: fixed-width types only, no pointers.
 */
#ifndef RTXG_BPF_DISCOVER_H
#define RTXG_BPF_DISCOVER_H

/* Kinds of record. */
enum discover_kind {
	/* an RM object was allocated: client, parent, object, class and what its class adds */
	DISCOVER_ALLOC = 1,
	DISCOVER_FREE, /* client, object: freed with everything below it */
	/* client, parent, object: a duplicate of src_client's src_object */
	DISCOVER_DUP,
	/* pid is the child of ppid; only for processes in the watched set */
	DISCOVER_FORK,
	/* pid runs another program now; only for processes in the watched set */
	DISCOVER_EXEC,
	DISCOVER_EXIT, /* pid has ended; only for processes in the watched set */
	/*
	 * records of pid were lost: count in `object`. pid 0: of processes that are not known;
	 * value 1: the ends of such, and no others. value DISCOVER_UNWATCHED: none, but so many
	 * processes are not in the watched set, for their user has no place left there
	 */
	DISCOVER_LOST,
	/*
	 * the process itself has issued a control that undoes what user space decides, or that says
	 * that a group is ready: client, object, class_id = the control, value
	 */
	DISCOVER_CONTROL,
};

/* Controls that are reported. Numbers are the driver's own. */
#define DISCOVER_SET_TIMESLICE	  0xa06c0103u /* value: microseconds */
#define DISCOVER_GROUP_SCHEDULE	  0xa06c0101u /* value: 1 = enabled */
#define DISCOVER_CHANNEL_SCHEDULE 0xa06f0103u /* the same */
#define DISCOVER_DISABLE_CHANNELS 0x2080110bu /* value: 0 = it let channels go */

/* Classes of objects that are reported; others are not. Numbers are the driver's own. */
#define DISCOVER_CLASS_ROOT	     0x0000u
#define DISCOVER_CLASS_ROOT_NON_PRIV 0x0001u
#define DISCOVER_CLASS_ROOT_CLIENT   0x0041u
#define DISCOVER_CLASS_DEVICE	     0x0080u
#define DISCOVER_CLASS_SUBDEVICE     0x2080u
#define DISCOVER_CLASS_GROUP	     0xa06cu

/*
 * Where the parameters of a channel have what is told of it, in bytes, by the release of the driver
 * (580 of 580.159.04). Release 610 put a field before them.
 */
#define DISCOVER_CHANNEL_USERD(release)	       ((release) >= 610 ? 36 : 32)
#define DISCOVER_CHANNEL_USERD_OFFSET(release) ((release) >= 610 ? 72 : 64)
#define DISCOVER_CHANNEL_ENGINE(release)       ((release) >= 610 ? 136 : 128)
#define DISCOVER_CHANNEL_CID(release)	       ((release) >= 610 ? 140 : 132)
#define DISCOVER_GROUP_ENGINE		       12

struct discover_record {
	unsigned int kind;
	/* process (thread group), as the pid namespace of the loader numbers it */
	unsigned int pid;
	unsigned int tid;
	unsigned int ppid;   /* FORK: the parent process */
	unsigned int client; /* hRoot */
	unsigned int parent;
	unsigned int object;
	unsigned int class_id;
	unsigned int engine; /* group, channel: engine type (1 = GR0, 9 = COPY0) */
	/* channel: the number that the context-switch log calls context_id */
	unsigned int cid;
	unsigned int device;	 /* DEVICE: device instance */
	unsigned int src_client; /* DUP */
	unsigned int src_object; /* DUP */
	/* what user space attached to the process in the watched set; inherited over fork */
	unsigned int tag;
	int fd; /* descriptor that the call was made on, in that process */
	/* channel: the memory object that holds its USERD, of the same client; 0 = the driver's */
	unsigned int userd;
	unsigned long long userd_offset; /* channel: where in it, in bytes */
	/* CONTROL, LOST; FORK: when it was born, ns since the boot; 0: the kernel does not tell */
	unsigned long long value;
	unsigned long long ns; /* CLOCK_MONOTONIC */
	char comm[16];
	unsigned int user; /* whose part of the ring it takes: a place */
	unsigned int reserved;
};

/*
 * Users who are told apart, from when the program is loaded: a power of two. Each has a place, and
 * with it a part of the ring and of the watched set. Those who come later share place 0.
 */
#define DISCOVER_USERS	   8192u
#define DISCOVER_UNWATCHED 2u

/* Ids that are subordinate to a user, as a prefix of their bits, and under which id they count. */
#define DISCOVER_PREFIXES 65536u
#define DISCOVER_BLOCK	  65536u
struct discover_prefix {
	unsigned int bits;
	unsigned int id; /* the bytes with the highest one first */
};
struct discover_subordinate {
	unsigned int first;   /* of the range that they are of */
	unsigned int account; /* 0: each DISCOVER_BLOCK from the first on counts by itself */
	unsigned int reading; /* of the file that says so */
};

/* processes in the watched set */
#define DISCOVER_WATCHED 65536u
/* One more of a user who has that many, of so many in all? */
#define DISCOVER_MAY_WATCH(has, all) ((all) < DISCOVER_WATCHED && (has) < DISCOVER_WATCHED - (all))
struct discover_watched {
	unsigned int tag;
	unsigned int user; /* whose it is, of DISCOVER_USERS */
};
/* records of one user that wait in the ring, at most */
#define DISCOVER_WAITING 8192u

#endif
