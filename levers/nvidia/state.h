/* SPDX-License-Identifier: MIT */
/*
 * state.h - the lever's own state, shared by its files and by its tests. Hosts use lever_nvidia.h.
 */
#ifndef RTXG_NV_STATE_H
#define RTXG_NV_STATE_H

#include "adopt.h"
#include "assigned.h"
#include "channels.h"
#include "fecs.h"
#include "journal.h"
#include "lookout.h"
#include "lever_nvidia.h"
#include "releases_write.h"
#include "rm.h"
#include "sight.h"

#define NV_CID_TABLE 4096u
#define NV_UNKNOWN   64u
#define NV_USERS     64u       /* users whose ids differ by a multiple of it share one place */
#define NV_PIECE_NS  300000ull /* of work that is done piece by piece */

struct discovery;

enum nv_source {
	NV_SOURCE_DISCOVERY,
	NV_SOURCE_TIMER,
	NV_SOURCE_KMSG,
	NV_SOURCE_GUARDIAN,
};

/* Actions that can be refused, RTXG_SLICE_SET to RTXG_SLICE_RESUME, as indices. */
#define NV_ACTIONS	  3u
#define NV_ACTION(type)	  ((type)-RTXG_SLICE_SET)
#define NV_DOUBTFUL_LIMIT 8u /* doubtful refusals in a row that make a final one */

struct nv_refusal {
	uint32_t times; /* in a row; 0 = the last attempt went well */
	uint32_t status;
	int err;
	bool final;
};

/*
 * A process on one GPU: one context of the slice policy, however many CUDA contexts it has there.
 */
struct nv_context {
	struct nv_process *process; /* NULL: free */
	uint32_t vgpu;
	bool stopped;
	uint64_t slice_ns;
	uint64_t since;	  /* of the present stay; 0 = off the engine */
	uint64_t known;	  /* when it was found */
	uint64_t worked;  /* when the log was read that told of it last; 0: never */
	uint64_t checked; /* its slice, last */
	uint64_t looked;  /* when its channels were looked for, last, if it is a load */
	bool warms;	  /* librtxg-cuda.so is in it */
	bool load;	  /* it is there, and cannot be governed */
	struct nv_refusal refusal[NV_ACTIONS];
	char reason
		[160]; /* why it is not governed, or not in every way, and what to do; or empty */
	struct nv_sight sight;
	uint64_t own_at, own_pause;	       /* of answers to its own controls */
	struct rtxg_slice_context_view before; /* from before the policy was restarted */
};

/* A process that has the driver open and a context that is not known, or was not a while ago. */
struct nv_unknown {
	uint32_t pid;  /* 0: free */
	uint32_t user; /* whose it is, as a place in `looks_again` */
	bool found;    /* it is known, and not looked for again before then */
	bool waits;    /* nothing is done about it before then, nor is it a load */
	uint64_t again, pause;
	const char *remedy; /* NULL: nothing is known against it */
};

struct nv_gpu {
	struct nv_rm_gpu rm;
	struct nv_fecs fecs;
	bool has_log, lost;
	int log_error;
	uint32_t can;
	uint32_t cannot_now; /* taken from it while there is no guardian */
	struct rtxg_slice *slice;
	void *mem;
	uint64_t timer, stepped, lost_before;
	bool unread;	      /* at the timer's time the log need not be read */
	uint64_t read;	      /* when it was, last, */
	uint64_t read_again;  /* and no earlier than then again */
	uint64_t read_before; /* the same of the time when records were taken from it */
	uint64_t compared;    /* when the GPU's clock was, because of a record */
	bool vgpu[LEVER_NVIDIA_VGPUS];
	bool coupled[LEVER_NVIDIA_VGPUS]; /* the policy was told that it is on other GPUs too */
	struct rtxg_slice_tenant params[LEVER_NVIDIA_VGPUS];
	/* from before the policy was restarted */
	struct rtxg_slice_view before[LEVER_NVIDIA_VGPUS];
	struct nv_context context[LEVER_NVIDIA_CONTEXTS];
	uint32_t high;
	uint32_t check_from; /* whose slice is looked at first in the next watch */
	struct {
		uint32_t cid, context;
	} cid[NV_CID_TABLE];
	/* refusals that the policy is still to be told of */
	struct {
		uint32_t context, value;
	} refused[LEVER_NVIDIA_CONTEXTS];
	uint32_t refusals;
	bool stepping;
	uint64_t steps, asked; /* of the policy; the step after which it was asked about looks */
};

struct lever_nvidia {
	const struct nv_sys *sys;
	struct lever_nvidia_options options;
	struct lever_nvidia_ops ops;
	struct nv_rm rm;
	struct nv_gpu gpu[RM_GPUS_MAX];
	uint32_t gpus;
	struct discovery *discovery;
	struct nv_registry registry;
	struct nv_journal journal;
	struct nv_lookout lookout;
	struct nv_releases *releases; /* NULL: no program is told */
	struct nv_assigned assigned;
	unsigned int place_next; /* the process whose place is asked for next */
	int assigned_error;	 /* of the file, said already */
	struct lever_nvidia_stats stats;
	struct nv_layout layout;
	struct rtxg_slice_params costs; /* those that the probes measured; else 0 */
	pid_t guardian;
	int guardian_fd, guardian_error;
	bool guarded, enabled;
	uint64_t guard_again, guard_pause; /* when a guardian is started again; 0: never */
	uint32_t let_go, self;
	int epoll, timerfd, kmsg;
	uint64_t armed;		  /* what the timer stands at */
	uint64_t armed_at;	  /* and since when: it may stand at a time that was over then */
	bool prune;		  /* records were lost: processes may have ended unseen */
	uint64_t save_again;	  /* when more is written of the file; UINT64_MAX: never */
	bool pruning, inheriting; /* what was assigned is looked at, piece by piece, */
	bool sweeping;		  /* so is what is followed */
	bool inherit_again;	  /* and from the beginning afterwards */
	uint64_t refused_said;	  /* refused records, when it was said last, */
	uint64_t lost_said;	  /* and lost ones */
	uint64_t pump_again;	  /* when the records that wait are read; UINT64_MAX: at once */
	uint64_t pump_spent;	  /* on reading without a pause, when the last read ended */
	uint64_t pump_ended;
	uint64_t unwatched, unwatched_said; /* processes of a user who has too many, the same */
	bool rescan;			    /* a process has `missed` */
	uint64_t rescan_again;		    /* none is looked at before */
	uint64_t next_watch, next_calibrate;
	uint64_t open_again;  /* no more queues are opened before: the driver is slow */
	uint64_t claim_again; /* no claim is looked into before: see claims.h */
	uint64_t watch_due;   /* since when the watch is put off; 0 = it is not */
	struct nv_unknown unknown[NV_UNKNOWN];
	uint32_t unknown_next;
	/* before then no process of such a user is looked for */
	uint64_t looks_again[NV_USERS];
	uint32_t load_next; /* the user whose loads are looked for first, next time */
	struct lever_nvidia_probe probe[8];
	int probes;
};

/* A line for the host's log. */
void nv_log(struct lever_nvidia *l, enum lever_nvidia_log level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
uint64_t nv_now(const struct lever_nvidia *l);
/* Hand-overs of the host, between two pieces of long work. */
void nv_breathe(struct lever_nvidia *l);
/* Tells the guardian that the lever does not hang. */
void nv_beat(struct lever_nvidia *l);
/* The context of a process on a GPU; NULL: it has none there. */
struct nv_context *nv_context_of(struct nv_gpu *g, const struct nv_process *p);

#endif
