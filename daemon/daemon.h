/* SPDX-License-Identifier: MIT */
/*
 * daemon.h - the structures that all files of the daemon share. Each .c has a header with its own
 * API; this one has none.
 *
 * The daemon is one thread, but for what may take long (discard.c, names.c, patience.c). It holds
 * no policy: the core chooses which task gets an engine, and only struct host (host.h) knows where
 * that core is.
 *
 * The files stand on floors. A file calls files below its own floor, and others only through a
 * table or a callback that it was given.
 *
 *   main.c                      start, the loop, signals, the service manager
 *   control.c                   the table of requests; control_*.c: their handlers, by noun
 *   client.c                    connections: packets in, the end of a process
 *   user.c                      what each user id has, and whose request is next
 *   watch.c                     waits for descriptors that come and go
 *   doctor.c                    what works here, what does not, limits
 *   backends.c                  the table of backends
 *   backend_gate.c              the backend of tasks that were opened
 *   backend_nvidia.c            the backend of the NVIDIA lever; nvidia_report.c, nvidia_promise.c,
 *                               timeline.c, nvidia.c
 *   task.c                      a task from open to death
 *   keep.c                      what was made at run time, for the next daemon
 *   persist.c                   a vGPU as a drop-in of the configuration
 *   config_apply.c              the configuration: config_files.c, config_parse.c, config_values.c
 *   module.c                    struct host: the front of rtxg.ko; module_calls.c,
 *                               module_picture.c
 *   host.c                      struct host: the core in this process, the path of a hand-over
 *   report.c metrics.c          values of which replies are made
 *   place.c                     which vGPU a program belongs to by its cgroup and the rules, and
 *                               moving it there
 *   objects.c                   GPUs, vGPUs, pools
 *   binding.c cgroup.c          which cgroups belong to which vGPU; names of cgroups
 *   history.c                   samples every 100 ms
 *   access.c process.c reply.c  who may do what; what /proc says; packets out
 *   params.c raised.c           parameters as a request gives them; threads to be set back
 *   refused.c                   which processes got no task, and why
 *   discard.c foreign.c         what users have open, too, is read and closed in threads with files
 *                               of their own
 *   names.c                     asks for users' names, in threads
 *   closer.c program.c          processes that close what may not close, and start programs
 *   memory.c                    limits on GPU memory, carried out by a program of its own
 *   backend.c message.c         asks every backend; requests as typed values
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
#include "permit.h"
#include "rtxg_cpu_inherit.h"
#include "watch.h"

#define VGPUS_MAX	256u  /* named */
#define ACCOUNTS_MAX	1024u /* a vGPU on a GPU: the core's vGPUs */
#define TASKS_MAX	4096u
#define POOLS_MAX	16u
#define BINDINGS_MAX	1024u /* cgroups with a vGPU */
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
struct backend;
struct host;
struct host_news;
struct task;

struct gpu {
	bool used;
	uint32_t id;
	char name[RTXG_NAME_MAX + 1];
	struct rtxg_gpu_params params;
	enum origin origin;
	struct user *user; /* whose task named it first; NULL: an administrator did */
	bool shared;	   /* tasks of other users were on it, too */
	uint32_t tasks;
	uint64_t last_used_ns;
	bool changed; /* at run time, since the configuration was read */
};

struct slot {
	uint32_t busy_ns, device_ns, backlogged_ns, completions;
};

/* What one vGPU had done on one engine at the last sample. */
struct account_engine {
	struct rtxg_stats last;
	uint64_t last_device_ns, last_active_ns;
	uint64_t entitled_ns; /* the reserved part of the time in which it wanted the engine */
};

struct account {
	bool used;
	uint32_t id; /* the core's vGPU */
	struct vgpu *vgpu;
	struct gpu *gpu;
	struct user *user; /* whose task made it; NULL: an administrator's, or the host did */
	uint32_t tasks;
	uint64_t since_ns;
	struct permit_account permit;
	struct account_engine engines[RTXG_ENGINES];
	struct slot (*slots)[RTXG_ENGINES]; /* SLOTS of them, from the first task on */
	bool short_of_share;		    /* in the last second: see history.c */
	uint64_t short_ns;		    /* for how long, since the account was made */
};

struct vgpu {
	struct daemon *daemon;
	bool used, configured; /* configured: seen by the last reading of the configuration */
	char name[RTXG_NAME_MAX + 1];
	char gpu[RTXG_NAME_MAX + 1]; /* "" = all */
	struct rtxg_vgpu_params params;
	/* of levers that can stop what runs; 0: not given */
	uint64_t latency_ns, quantum_ns;
	uint64_t memory_bytes; /* its programs have no more of a GPU's memory; 0: no limit */
	uint32_t task_priority;
	char users[USERS_MAX][64];
	uint32_t users_count;
	enum origin origin;
	char source[256];
	uint32_t tasks;
	uint64_t created;
	struct account *on[GPUS_MAX];
	bool changed;	 /* at run time, since the configuration was read */
	bool persistent; /* a drop-in of ours configures it */
	bool awaited;	 /* its tasks may be on their way from the last daemon */
	bool entered;	 /* a task is being changed, and is about to move here */
	int creator;	 /* pidfd; transient only */
	struct watch creator_watch;
	/* of a transient one; began as process_began() has it */
	pid_t creator_pid;
	unsigned long long creator_began;
};

struct pool {
	bool used;
	uint32_t id;
	char name[RTXG_NAME_MAX + 1];
	uint64_t mask;
	uint32_t members;
	bool made; /* at run time */
};

/* See fence.c. */
struct fence {
	void *page; /* NULL: none */
	const uint32_t *word;
	int event; /* -1: none */
};

struct task {
	bool used;
	uint32_t id;
	struct connection *connection;
	pid_t pid;
	unsigned long long began; /* its process, as process_began() has it; 0: was not asked */
	uid_t uid;
	char comm[64];		   /* of its process, when metrics were first asked for; or empty */
	struct permit_task permit; /* its page, lanes and parameters */
	int doorbell;
	struct gpu *gpu;
	struct vgpu *vgpu;
	struct account *account;
	uint32_t priority_limit; /* what it may set by itself */
	struct vgpu *moving_to;
	struct pool *pool;
	struct fence fences[RTXG_PAGE_LANES];
	uint64_t page_inode; /* no other page has it while the task lives */
	bool placed;	     /* by another client than itself: the next daemon is told */
	bool found;	     /* it named no vGPU: its cgroup or a rule says where it belongs */
	uint32_t ceiling;    /* of its process's threads: see critical.c */
	bool ungated; /* managed in part, as the module says; a page of ours says it itself */
	/* The thread that asked for a GPU of the pool; 0: did not say. See inherit.c. */
	struct {
		pid_t id;
		unsigned long long began;
		uint32_t passes;   /* what it passes on while it waits */
		uint32_t inherits; /* from those it keeps waiting; 0: nothing */
		struct rtxg_inherit_thread state;
		/* The first thread of its process; 0: it is that itself. */
		unsigned long long first_began;
		uint32_t first_priority; /* at the last look */
	} thread;
};

/* What the processes of one user id have here: see user.c. */
struct user {
	uid_t uid;
	char owner[33]; /* whose subordinate ids count here; "": the user itself */
	bool trusted;	/* root, and the owner of a user's own daemon: no quota */
	uint32_t connections, tasks, gpus, accounts, cgroups;
	uint32_t unread; /* long replies that its clients have not read */
	uint64_t unread_bytes;
	uint64_t requests, cost_ns;	 /* so far */
	uint64_t virtual_ns;		 /* fair queueing: what its requests have cost */
	uint64_t ready_ns;		 /* its next request is served no sooner */
	uint64_t held_ns;		 /* nor sooner than this: see user_packet() */
	struct connection *first, *last; /* with a request to be served */
	struct user *next;
};

struct connection {
	struct daemon *daemon;
	struct user *user;
	struct connection *queue_next;
	bool queued;
	bool listening;	 /* for the client to read, rather than to send */
	uint64_t unread; /* bytes of a long reply that the client has not read */
	int fd, pidfd;
	struct watch io, process;
	pid_t pid;
	uid_t uid;
	gid_t gid;
	bool group; /* member of group rtxg */
	struct task *task;
	struct connection *next, *prev;
	bool closing;	   /* after the current reply */
	bool later;	   /* the request can be served when something is known: daemon.again */
	struct kept *kept; /* such a request, or one that is served in pieces */
	/*
	 * Of a request that is served in pieces, until it has its answer; NULL: of none. Its
	 * handler sets `later` after each piece but the last.
	 */
	void *pieces;
	void (*drop_pieces)(void *pieces);
	struct reading *reading; /* a packet of it is read elsewhere: see discard.c */
	bool no_room;		 /* for that: it is tried again */
};

struct match {
	char vgpu[RTXG_NAME_MAX + 1];
	char user[64];
	char exec[256];
	char slice[256];
	char cgroup[256];
	char source[256];
};

struct daemon {
	bool system; /* scope */
	const struct host *host;
	const struct backend *const *backends; /* NULL at the end */
	const struct host_news *news;	       /* for the host in this process */
	bool host_given;		       /* by --host, or by RTXG_HOST */
	struct rtxg_refusal refusal;	       /* of the last call of host that the core refused */
	uint32_t tasks_max, gpus_max;
	char socket_path[108];
	uint64_t started_ns, generation;
	bool fail_closed;
	uint64_t idle_exit_ns; /* 0 = stays */
	uint64_t idle_since;
	uint32_t tasks_per_user;
	bool gpus_by_claim; /* a user's task may name a GPU that no device is known for */
	/* where to look instead of /etc, /run and /usr/lib; NULL = there */
	const char *config_root;
	char config_fail[512];
	bool config_read; /* once at least */
	gid_t group;	  /* rtxg, or -1 */

	struct permit_machine permits;
	uint64_t armed_ns;  /* the core's timer */
	uint64_t sample_ns; /* next sample; RTXG_TIME_NEVER while no task is open */

	struct gpu gpus[GPUS_MAX];
	struct rtxg_gpu_params gpu_default;
	bool gpu_default_changed;		/* at run time, since the configuration was read */
	struct vgpu *vgpus;			/* VGPUS_MAX */
	struct account *accounts;		/* ACCOUNTS_MAX */
	struct task *tasks;			/* TASKS_MAX */
	uint32_t *free_tasks, free_tasks_count; /* a stack */
	uint32_t tasks_count, tasks_top;	/* none at or above tasks_top */
	struct pool pools[POOLS_MAX];
	struct match *matches;
	uint32_t matches_count;
	struct binding *bindings;
	uint32_t bindings_count;
	uint32_t binding_next; /* the bound cgroup that is looked at next */
	uint32_t place_next;   /* the task whose place is looked at next */
	uint64_t created;      /* counts vGPUs, for the order of lists */

	uint64_t times[SLOTS + 1]; /* borders of the slots; times[n % (SLOTS+1)] */
	uint64_t samples;	   /* slots completed */

	sd_event *event;
	int fast; /* epoll: doorbells, watches, and the event loop's descriptor */
	struct watch *told, *told_last; /* in watch.c */
	int spare;			/* a descriptor to give up when there are no others */
	void (*handle)(struct connection *c, const char *text, size_t size, int fd);
	void (*again)(struct daemon *d); /* serves the requests that are kept */
	struct watch listener;
	struct connection *connections;
	uint32_t connections_count;
	struct user *users;
	uint32_t queued;     /* connections with a request to be served */
	uint64_t virtual_ns; /* of the user who was served last */
	bool stop;
	bool governing;	    /* the backends have been started, so they can be asked */
	bool configuring;   /* files come into force: a bound that cannot be kept is no refusal */
	int inherit_error;  /* errno: a thread could not be given what it inherits */
	bool inherit_again; /* the next sample tries it */
	uint32_t ceiling;   /* of all tasks: see critical.c */
};

#endif
