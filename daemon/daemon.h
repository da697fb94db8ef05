/* SPDX-License-Identifier: MIT */
/*
 * daemon.h - the structures that all files of the daemon share. Each .c has a header with its own
 * API; this one has none.
 *
 * The daemon is one thread. The daemon holds no policy: the core chooses which task gets an engine,
 * and only struct host (host.h) knows where that core is.
 */
#ifndef RTXGD_DAEMON_H
#define RTXGD_DAEMON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "message.h"
#include "rtxg/control.h"
#include "rtxg/page.h"
#include "rtxg_clock.h"
#include "rtxg_core.h"

#define VGPUS_MAX	256u  /* named */
#define ACCOUNTS_MAX	1024u /* a vGPU on a GPU: the core's vGPUs */
#define TASKS_MAX	4096u
#define POOLS_MAX	16u
#define MATCHES_MAX	256u
#define USERS_MAX	16u
#define CONNECTIONS_MAX (TASKS_MAX + 512u)

#define NS_PER_S  1000000000ull
#define NS_PER_MS 1000000ull
#define SLOT_NS	  (100 * NS_PER_MS)
#define SLOTS	  600u

/* Words of a task's page, which the client reads and writes at the same time. */
#define page_load(p)	 __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define page_store(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

enum origin { ORIGIN_BUILTIN, ORIGIN_CONFIG, ORIGIN_RUNTIME, ORIGIN_TRANSIENT, ORIGIN_TASK };

struct daemon;
struct host;
struct host_news;
struct lever;
struct task;

struct gpu {
	bool used;
	uint32_t id;
	char name[RTXG_NAME_MAX + 1];
	struct rtxg_gpu_params params;
	const struct lever *lever;
	enum origin origin;
	uint32_t tasks;
	uint64_t last_used_ns;
};

struct slot {
	uint32_t busy_ns, device_ns, backlogged_ns, completions;
};

/* What one vGPU did on one engine, beyond what the core counts. */
struct account_engine {
	uint64_t device_ns, launches; /* of all its tasks, gone ones too */
	uint32_t active;	      /* lanes that hold or wait */
	uint64_t active_since, active_ns;
	struct rtxg_stats last; /* at the last sample */
	uint64_t last_device_ns, last_active_ns;
};

struct account {
	bool used;
	uint32_t id; /* the core's vGPU */
	struct vgpu *vgpu;
	struct gpu *gpu;
	uint32_t tasks;
	uint64_t since_ns;
	struct account_engine engines[RTXG_ENGINES];
	struct slot (*slots)[RTXG_ENGINES]; /* SLOTS of them, from the first task on */
};

struct vgpu {
	struct daemon *daemon;
	bool used, configured; /* configured: seen by the last reading of the configuration */
	char name[RTXG_NAME_MAX + 1];
	char gpu[RTXG_NAME_MAX + 1]; /* "" = all */
	struct rtxg_vgpu_params params;
	uint32_t task_priority;
	char users[USERS_MAX][64];
	uint32_t users_count;
	enum origin origin;
	char source[256];
	uint32_t tasks;
	uint64_t created;
	struct account *on[GPUS_MAX];
	int creator; /* pidfd; transient only */
	sd_event_source *creator_source;
};

struct pool {
	bool used;
	uint32_t id;
	char name[RTXG_NAME_MAX + 1];
	uint64_t mask;
	uint32_t members;
};

enum lane_state { LANE_FREE, LANE_WAITING, LANE_HELD, LANE_REVOKED };

/* One task on one engine, as the daemon remembers it: never read back from the page. */
struct lane {
	uint8_t state; /* enum lane_state */
	bool again;    /* the core knows that it wants another permit after this one */
	/* HELD with REPORT: COMPLETION was sent and no launch seen since */
	bool idle_reported;
	bool last;	/* REVOKED: good for one launch all the same, see call_back() */
	bool queued;	/* in daemon.looks */
	uint32_t flags; /* RTXG_GRANT_* */
	uint32_t sequence;
	uint64_t launches_at; /* page's launches at the grant, or at the last COMPLETION */
	uint64_t claimed_ns;  /* page's claim of busy time already passed on */
	uint64_t device_seen, launches_seen;
};

struct task {
	bool used;
	uint32_t id;
	struct connection *connection;
	pid_t pid;
	uid_t uid;
	struct rtxg_page *page;
	int doorbell;
	struct gpu *gpu;
	struct vgpu *vgpu;
	struct account *account;
	struct rtxg_task_params params;
	uint32_t priority_limit; /* what it may set by itself */
	uint64_t opened_ns;
	struct lane lanes[RTXG_ENGINES];
	struct rtxg_stats before[RTXG_ENGINES]; /* from before a move */
	struct vgpu *moving_to;
	struct pool *pool;
	bool pool_held;
	uint32_t pool_gpu;
	struct task *look_next[RTXG_ENGINES];
};

struct connection {
	struct daemon *daemon;
	int fd, pidfd;
	sd_event_source *io, *process;
	pid_t pid;
	uid_t uid;
	gid_t gid;
	bool group; /* member of group rtxg */
	struct task *task;
	struct connection *next, *prev;
	bool closing; /* after the current reply */
};

struct match {
	char vgpu[RTXG_NAME_MAX + 1];
	char user[64];
	char exec[256];
	char slice[256];
	char source[256];
};

struct daemon {
	bool system; /* scope */
	const struct host *host;
	const struct host_news *news; /* for the host in this process */
	bool host_given;	      /* by --host, or by whoever started us */
	struct rtxg_refusal refusal;  /* of the last call of host that the core refused */
	uint32_t tasks_max;
	char socket_path[108];
	uint64_t started_ns, generation;
	bool fail_closed;
	uint64_t idle_exit_ns; /* 0 = stays */
	uint64_t idle_since;
	uint32_t tasks_per_user;
	/* where to look instead of /etc, /run and /usr/lib; NULL = there */
	const char *config_root;
	char config_fail[512];
	gid_t group; /* rtxg, or -1 */

	struct rtxg_core *core;
	uint64_t armed_ns;  /* the core's timer */
	uint64_t sample_ns; /* next sample; RTXG_TIME_NEVER while no task is open */
	/* lanes to look at, per engine */
	struct task *looks[RTXG_ENGINES], **looks_end[RTXG_ENGINES];

	struct gpu gpus[GPUS_MAX];
	struct rtxg_gpu_params gpu_default;
	struct vgpu *vgpus;			/* VGPUS_MAX */
	struct account *accounts;		/* ACCOUNTS_MAX */
	struct task *tasks;			/* TASKS_MAX */
	uint32_t *free_tasks, free_tasks_count; /* a stack */
	uint32_t tasks_count, tasks_top;	/* none at or above tasks_top */
	struct pool pools[POOLS_MAX];
	struct match *matches;
	uint32_t matches_count;
	uint64_t created; /* counts vGPUs, for the order of lists */

	uint64_t times[SLOTS + 1]; /* borders of the slots; times[n % (SLOTS+1)] */
	uint64_t samples;	   /* slots completed */

	sd_event *event;
	int fast;  /* epoll: doorbells, and the event loop's descriptor */
	int spare; /* a descriptor to give up when there are no others */
	sd_event_source *listen_source;
	struct connection *connections;
	uint32_t connections_count;
	bool stop;
};

#endif
