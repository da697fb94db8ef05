/* SPDX-License-Identifier: MIT */
/*
 * rtxgd.h - the daemon's own structures.
 *
 *   main.c     start, the loop, signals, the service manager
 *   host.c     hosts the core: turns pages and time into events and actions into permits. The path
 *              of a hand-over
 *   module.c   instead: the front of rtxg.ko, which hosts the core in the kernel
 *   gate.c     the lever that works everywhere: a permit word that a launch waits for
 *   client.c   connections, and the life of a task from open to death
 *   message.c  requests as typed values
 *   control.c  what the requests do
 *   report.c   what the listing requests show
 *   history.c  samples every 100 ms
 *   config.c   configuration files
 *
 * One thread. The daemon holds no policy: whoever gets an engine was chosen by the core. Where that
 * core is, only struct host knows.
 */
#ifndef RTXGD_H
#define RTXGD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "message.h"
#include "rtxg/control.h"
#include "rtxg/page.h"
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

#define load(p)	    __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define store(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

enum origin { ORIGIN_BUILTIN, ORIGIN_CONFIG, ORIGIN_RUNTIME, ORIGIN_TRANSIENT, ORIGIN_TASK };

struct daemon;
struct task;

/* How a decision reaches a GPU. */
struct lever {
	const char *name;
	void (*grant)(struct task *task, uint32_t engine, uint32_t flags, bool anew);
	void (*revoke)(struct task *task, uint32_t engine);
	void (*slice)(struct task *task, uint64_t slice_ns);
	void (*suspend)(struct task *task);
	void (*resume)(struct task *task);
};
extern const struct lever lever_gate;

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

/* A task on one engine, as people see it. */
struct lane_view {
	const char *state;
	uint32_t in_flight;
	uint64_t launches, device_ns; /* its own claims */
	struct rtxg_stats stats;
};

enum verb { VERB_ADD, VERB_SET, VERB_REMOVE };

/*
 * Where the core is: in this process (host.c), or in rtxg.ko (module.c). Calls return 0 or a
 * negative errno; if it was the core that refused daemon.refusal says why.
 */
struct host {
	const char *name;
	bool here; /* tasks open through our socket, and their permits are ours to give */
	int (*gpu)(struct daemon *d, struct gpu *gpu, enum verb verb,
		   const struct rtxg_gpu_params *params);
	int (*account)(struct daemon *d, struct account *account, enum verb verb,
		       const struct rtxg_vgpu_params *params);
	int (*pool)(struct daemon *d, struct pool *pool, enum verb verb);
	int (*task_set)(struct daemon *d, struct task *task, const struct rtxg_task_params *params);
	/*
	 * Its account on the task's GPU is there. Takes effect once nothing of the task is in
	 * flight.
	 */
	int (*task_move)(struct daemon *d, struct task *task, struct vgpu *to);
	/*
	 * Something has changed that is no parameter of the core: who made it, who may use it, what
	 * its tasks get. Either may be NULL.
	 */
	void (*changed)(struct daemon *d, struct gpu *gpu, struct vgpu *vgpu);
	/* The configuration was read. */
	void (*configured)(struct daemon *d);
	/* The daemon's tables show what is there now. */
	void (*look)(struct daemon *d);
	/* That, and all accounts are brought up to this moment. */
	void (*count)(struct daemon *d);
	void (*account_view)(struct daemon *d, const struct account *account, uint32_t engine,
			     uint64_t now, struct rtxg_account_view *view);
	void (*lane_view)(struct daemon *d, const struct task *task, uint32_t engine,
			  struct lane_view *view);
	struct gpu *(*advice)(struct daemon *d, const struct pool *pool);
	/* An invariant that does not hold; NULL. */
	const char *(*check)(struct daemon *d);
};
extern const struct host host_here, host_module;

struct daemon {
	bool system; /* scope */
	const struct host *host;
	bool host_given;	     /* by --host, or by whoever started us */
	struct rtxg_refusal refusal; /* of the last call of host that the core refused */
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

uint64_t now_ns(void);

/* host.c */
int host_init(struct daemon *d);
int host_event(struct daemon *d, const struct rtxg_event *event);
void host_doorbell(struct daemon *d, struct task *task);
void host_look(struct daemon *d, struct task *task);
void host_run_looks(struct daemon *d);
void host_timer(struct daemon *d);
void host_settle(struct daemon *d, struct task *task);
void host_start_move(struct daemon *d, struct task *task, struct vgpu *to);
uint64_t host_active_ns(const struct account_engine *e, uint64_t now);
void host_forget_task(struct daemon *d, struct task *task);

/* module.c */
int module_start(struct daemon *d, bool insist);
void module_watch(struct daemon *d);
void module_stop(void);

/* objects.c */
void gpu_defaults(struct daemon *d);
struct account *account_adopt(struct daemon *d, struct vgpu *vgpu, struct gpu *gpu);
void account_forget(struct daemon *d, struct account *account);
void vgpu_forget(struct daemon *d, struct vgpu *vgpu);
struct gpu *gpu_find(struct daemon *d, const char *name);
struct gpu *gpu_get(struct daemon *d, const char *name, enum origin origin, char *why, size_t size,
		    int *error);
struct vgpu *vgpu_find(struct daemon *d, const char *name);
int vgpu_create(struct daemon *d, const struct vgpu *wanted, struct vgpu **vgpu, char *why,
		size_t size, struct rtxg_refusal *refusal);
int vgpu_change(struct daemon *d, struct vgpu *vgpu, const struct rtxg_vgpu_params *params,
		char *why, size_t size, struct rtxg_refusal *refusal);
int vgpu_remove(struct daemon *d, struct vgpu *vgpu);
void vgpu_collect(struct daemon *d, struct vgpu *vgpu);
int vgpu_creator_ended(sd_event_source *s, int fd, uint32_t events, void *data);
struct account *account_get(struct daemon *d, struct vgpu *vgpu, struct gpu *gpu, char *why,
			    size_t size, int *error, struct rtxg_refusal *refusal);
int gpu_change(struct daemon *d, struct gpu *gpu, const struct rtxg_gpu_params *params, char *why,
	       size_t size, struct rtxg_refusal *refusal);
struct pool *pool_find(struct daemon *d, const char *name);
int pool_create(struct daemon *d, const char *name, uint64_t mask, char *why, size_t size);
int pool_remove(struct daemon *d, struct pool *pool);
bool work_conserving(const struct vgpu *vgpu, const struct gpu *gpu);
void explain(char *why, size_t size, const char *what, const struct rtxg_refusal *refusal,
	     int error);

/* client.c */
int client_listen(struct daemon *d, int fd);
void client_drop(struct connection *c);
int client_reply(struct connection *c, json_t *reply, const int *fds, unsigned int fds_count);
int client_error(struct connection *c, const char *op, int error, const char *why,
		 const struct rtxg_refusal *refusal);
void client_pool_granted(struct daemon *d, struct task *task);

/* task.c */
int task_place(struct connection *c, const struct request *r, struct account **account, char *why,
	       size_t size, struct rtxg_refusal *refusal);
int task_open(struct connection *c, const struct request *r, int fd);
int task_set(struct daemon *d, struct task *task, const struct request *r, char *why, size_t size,
	     struct rtxg_refusal *refusal);
void task_close(struct daemon *d, struct task *task);
const char *match_vgpu(struct daemon *d, const struct connection *c, char name[RTXG_NAME_MAX + 1]);
bool user_allowed(const struct vgpu *vgpu, const struct connection *c);

/* control.c */
bool may_administer(const struct connection *c);
bool may_raise(const struct connection *c);
void control_handle(struct connection *c, const struct request *r, int fd);

/* report.c */
json_t *report_gpu(struct daemon *d, const struct gpu *gpu);
json_t *report_gpu_params(const struct rtxg_gpu_params *params);
json_t *report_vgpu(struct daemon *d, const struct vgpu *vgpu);
json_t *report_task(struct daemon *d, const struct task *task);
json_t *report_stats(struct daemon *d, const struct gpu *only, bool tasks);
json_t *report_history(struct daemon *d, const struct gpu *only, uint64_t since, bool has_since);
json_t *report_limits(struct daemon *d);
json_t *report_doctor(struct daemon *d);

/* history.c */
void history_task_opened(struct daemon *d, struct account *account);
void history_sample(struct daemon *d);

/* config.c */
int config_load(struct daemon *d, json_t *messages);
int parse_share(const char *text, uint32_t *ppm);
int parse_duration(const char *text, uint64_t *ns);

#endif
