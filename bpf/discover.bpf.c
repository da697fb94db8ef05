// SPDX-License-Identifier: GPL-2.0-only
/*
 * discover.bpf.c - sees which process allocates which client, channel group and channel of NVIDIA's
 * resource manager, and tells user space through a ring buffer.
 *
 * It changes nothing in a process and returns nothing to it. It runs only on the few ioctl calls
 * that build or tear down a CUDA context, never on a kernel launch (a launch makes no system call).
 * It needs no kprobe and no BTF of any particular machine: the few kernel structures are declared
 * here and relocated when the program is loaded.
 *
 * Data from another process's memory are copied unchanged. User space checks them before use.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "discover.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define RING_BYTES	(1 << 22)
#define USER_NAMESPACES 33 /* in one another, at most */
#define PID_NAMESPACES	33 /* in one another, at most */

/* character devices of the NVIDIA driver; fixed since its first release */
#define NVIDIA_MAJOR 195

/* Only what is read; field offsets come from the running kernel's BTF. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct inode {
	u32 i_rdev;
};
struct file {
	struct inode *f_inode;
};
struct fdtable {
	u32 max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};
typedef struct {
	int counter;
} atomic_t;
struct signal_struct {
	atomic_t live;
};
typedef struct {
	u32 val;
} kuid_t;
struct user_namespace {
	struct user_namespace *parent;
	int level;
	kuid_t owner;
};
struct cred {
	struct user_namespace *user_ns;
};
struct ns_common {
	u32 inum;
};
struct pid_namespace {
	struct ns_common ns;
};
struct upid {
	int nr;
	struct pid_namespace *ns;
};
struct pid {
	u32 level;
	struct upid numbers[1];
};
struct task_struct {
	int pid;
	int tgid;
	u64 start_boottime;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	const struct cred *cred;
	struct files_struct *files;
	struct signal_struct *signal;
};
#if defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	u64 regs[31];
	u64 sp;
	u64 pc;
	u64 pstate;
};
struct pt_regs {
	u64 regs[31];
	int syscallno;
};
#else
struct pt_regs {
	unsigned long di;
	unsigned long si;
	unsigned long dx;
	unsigned long orig_ax;
};
#endif
#pragma clang attribute pop

#if defined(__TARGET_ARCH_arm64)
#define NR_IOCTL 29
#else
#define NR_IOCTL 16
#endif

/* Numbers of the driver's interface: _IOWR('F', escape, size). */
#define RM_FREE	    0xc0104629u /* 16 bytes */
#define RM_CONTROL  0xc020462au /* NVOS54 */
#define RM_ALLOC_32 0xc020462bu /* NVOS21 */
#define RM_ALLOC_48 0xc030462bu /* NVOS64 */
#define RM_DUP	    0xc01c4634u /* 28 bytes */
#define RM_XFER	    0xc01046d3u /* wraps any of them: command, size, pointer */

struct call {
	u32 cmd;
	int fd;
	u64 arg;
};

/*
 * The calls that threads are in. Those that have been there for the longest time make room: threads
 * that stay in a call, of any file, would take the places of others. A place in each thread would
 * have to be allocated here, which PREEMPT_RT does not allow before Linux 6.4.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct call);
} calls SEC(".maps");

/* Processes that user space governs, with what it attached to them. A child inherits it at fork. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DISCOVER_WATCHED);
	__type(key, u32);
	__type(value, struct discover_watched);
} watched SEC(".maps");

/* The place of each user who has made a record or been watched, by the id that he counts under. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DISCOVER_USERS);
	__type(key, u32);
	__type(value, u32);
} users SEC(".maps");
unsigned int users_known; /* places that are taken */

/* What /etc/subuid says; user space fills it. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, DISCOVER_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct discover_prefix);
	__type(value, struct discover_subordinate);
} subordinates SEC(".maps");

/*
 * A program may fork without end, and its children stand there too. So no user has more places than
 * are left for others: how many each has, and how many are taken in all.
 */
unsigned long long held[DISCOVER_USERS], watching;
unsigned long long unfollowed; /* processes that had no place there */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} records SEC(".maps");

/*
 * A program may cause records as fast as it makes calls. So no user has more of the ring than is
 * left for others: how many records of each were put in, and how many user space has taken out.
 */
unsigned long long made[DISCOVER_USERS], taken[DISCOVER_USERS];

/* Processes of which a record is missing, and how many. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u32);
} missed SEC(".maps");

unsigned long long lost;    /* records that are missing, in all; */
unsigned long long unnamed; /* those of processes that had no room there, */
unsigned long long ends;    /* and ends of processes, which have no place there */

/* the loader, whose own controls are not reported; as whoami() names it */
const volatile unsigned int self;
const volatile unsigned int release; /* of the driver: see DISCOVER_CHANNEL_ENGINE */
/* pid namespace of the loader; 0 = report global pids */
const volatile unsigned long long pidns_ino;

/*
 * The number that the loader knows a process by: its own, or the one in the loader's pid
 * namespace. 0: that has none for it, and the number elsewhere is another process's there.
 */
static __noinline u32 pid_in_namespace(struct task_struct *task, u32 global)
{
	struct pid *pid;
	u32 level, i;

	if (!pidns_ino)
		return global;
	pid = BPF_CORE_READ(task, thread_pid);
	level = BPF_CORE_READ(pid, level);
	for (i = 0; i < PID_NAMESPACES; i++) {
		struct upid upid;

		if (i > level)
			break;
		if (bpf_core_read(&upid, sizeof(upid), &pid->numbers[i]))
			break;
		if (BPF_CORE_READ(upid.ns, ns.inum) == (u32)pidns_ino)
			return upid.nr;
	}
	return 0;
}

/*
 * The helper for that knows only processes of the loader's own namespace, and not those of one
 * below.
 */
static __always_inline void whoami(u32 *pid, u32 *tid)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u64 id = bpf_get_current_pid_tgid();

	*pid = id >> 32;
	*tid = (u32)id;
	if (pidns_ino) {
		*pid = pid_in_namespace(BPF_CORE_READ(task, group_leader), *pid);
		*tid = pid_in_namespace(task, *tid);
	}
}

/* Whom that id is subordinate to, as lib/subuid.c says it. 0: to no user. */
static __always_inline u32 superior(u32 id)
{
	struct discover_prefix key = { .bits = 32, .id = __builtin_bswap32(id) };
	const struct discover_subordinate *s = bpf_map_lookup_elem(&subordinates, &key);

	if (!s)
		return 0;
	return s->account ? s->account : id - (id - s->first) % DISCOVER_BLOCK;
}

/* Who made the outermost user namespace that the caller is in. 0: root, or it is in none. */
static __always_inline u32 maker(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct user_namespace *ns = (void *)BPF_CORE_READ(task, cred, user_ns);
	u32 i;

	for (i = 0; i < USER_NAMESPACES; i++) {
		int level = BPF_CORE_READ(ns, level);

		if (level <= 0)
			return 0;
		if (level == 1)
			return BPF_CORE_READ(ns, owner.val);
		ns = BPF_CORE_READ(ns, parent);
	}
	return 0;
}

/*
 * The place of the caller's user. One who may be many users, by /etc/subuid or in user namespaces,
 * is one: else such a user takes all of the ring and of the watched set.
 */
static __noinline u32 caller(void)
{
	u32 id = (u32)bpf_get_current_uid_gid(), account = id, made_by, place, *there;

	if (id) {
		account = superior(id);
		made_by = account ? 0 : maker();
		if (made_by)
			account = superior(made_by);
		if (!account)
			account = made_by ? made_by : id;
	}
	there = bpf_map_lookup_elem(&users, &account);
	if (!there) {
		if (users_known >= DISCOVER_USERS - 1)
			return 0;
		place = __sync_fetch_and_add(&users_known, 1) + 1;
		if (place >= DISCOVER_USERS)
			return 0;
		bpf_map_update_elem(&users, &account, &place, BPF_NOEXIST);
		there = bpf_map_lookup_elem(&users, &account); /* another one may have come first */
	}
	return there ? *there & (DISCOVER_USERS - 1) : 0;
}

static __always_inline void note_missed(u32 kind)
{
	u32 pid, tid, *count, one = 1;

	if (kind == DISCOVER_EXIT) {
		__sync_fetch_and_add(&ends, 1);
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	whoami(&pid, &tid);
	if (!pid)
		return;
	count = bpf_map_lookup_elem(&missed, &pid);
	if (count)
		__sync_fetch_and_add(count, 1);
	else if (bpf_map_update_elem(&missed, &pid, &one, BPF_NOEXIST))
		__sync_fetch_and_add(&unnamed, 1);
	__sync_fetch_and_add(&lost, 1);
}

/*
 * From now on the process is watched, if its user, who is the caller's, has a place left. Is it?
 * set: the tag counts also where one of that number is there, which has ended unseen.
 */
static __always_inline int watch(u32 pid, u32 tag, int set)
{
	struct discover_watched *there, new = { .tag = tag };
	u32 user;

	there = bpf_map_lookup_elem(&watched, &pid);
	if (there) {
		if (set)
			there->tag = tag;
		return 1;
	}
	user = new.user = caller() & (DISCOVER_USERS - 1);
	if (!DISCOVER_MAY_WATCH(held[user], watching) ||
	    bpf_map_update_elem(&watched, &pid, &new, BPF_NOEXIST)) {
		__sync_fetch_and_add(&unfollowed, 1);
		return 0;
	}
	__sync_fetch_and_add(&held[user], 1);
	__sync_fetch_and_add(&watching, 1);
	return 1;
}

/* Not watched any more. 0: it was. */
static __always_inline int forget(u32 pid)
{
	struct discover_watched *w = bpf_map_lookup_elem(&watched, &pid);
	u32 user;

	if (!w)
		return -1;
	user = w->user & (DISCOVER_USERS - 1);
	if (bpf_map_delete_elem(&watched, &pid))
		return -1;
	__sync_fetch_and_add(&held[user], -1);
	__sync_fetch_and_add(&watching, -1);
	return 0;
}

static __always_inline int may_have_more(u32 user)
{
	u64 waiting = made[user] - taken[user];
	u64 used = bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA);

	/* Each has a header of eight bytes. */
	return waiting < DISCOVER_WAITING &&
	       waiting * (sizeof(struct discover_record) + 8) < RING_BYTES - used;
}

static __always_inline struct discover_record *record_begin(u32 kind)
{
	struct discover_watched *w;
	struct discover_record *r = 0;
	u32 pid, tid, user;

	whoami(&pid, &tid);
	if (!pid)
		return 0;
	user = caller() & (DISCOVER_USERS - 1);
	if (may_have_more(user))
		r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);
	if (!r) {
		note_missed(kind);
		return 0;
	}
	__sync_fetch_and_add(&made[user], 1);
	__builtin_memset(r, 0, sizeof(*r));
	r->user = user;
	r->kind = kind;
	r->fd = -1;
	r->pid = pid;
	r->tid = tid;
	r->ns = bpf_ktime_get_ns();
	bpf_get_current_comm(r->comm, sizeof(r->comm));
	w = bpf_map_lookup_elem(&watched, &pid);
	if (w)
		r->tag = w->tag;
	return r;
}

/* Is that descriptor of the calling process one of the driver's character devices? */
static __always_inline int is_nvidia(int fd)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct file **table, *file = 0;
	u32 max, dev;

	max = BPF_CORE_READ(task, files, fdt, max_fds);
	if (fd < 0 || (u32)fd >= max)
		return 0;
	table = BPF_CORE_READ(task, files, fdt, fd);
	bpf_probe_read_kernel(&file, sizeof(file), table + fd);
	if (!file)
		return 0;
	dev = BPF_CORE_READ(file, f_inode, i_rdev);
	return (dev >> 20) == NVIDIA_MAJOR;
}

static __always_inline int interesting(u32 cmd)
{
	return cmd == RM_CONTROL || cmd == RM_FREE || cmd == RM_ALLOC_32 || cmd == RM_ALLOC_48 ||
	       cmd == RM_DUP || cmd == RM_XFER;
}

/* Of the many controls that a program issues, those that matter. */
static __always_inline int interesting_control(u64 arg)
{
	u32 control, pid, tid;

	if (bpf_probe_read_user(&control, sizeof(control), (void *)(arg + 8)))
		return 0;
	if (control != DISCOVER_SET_TIMESLICE && control != DISCOVER_GROUP_SCHEDULE &&
	    control != DISCOVER_CHANNEL_SCHEDULE && control != DISCOVER_DISABLE_CHANNELS)
		return 0;
	whoami(&pid, &tid);
	return pid && pid != self;
}

static __always_inline int is_channel_class(u32 class)
{
	/*
	 * Every channel class since Kepler ends in 6f: a06f, b06f, c06f, c36f, c46f, c56f, c76f,
	 * c86f, c96f, ca6f
	 */
	return (class & 0xff) == 0x6f && class >= 0xa06f && class <= 0xffff;
}

static __always_inline void report_alloc(const struct call *call, u64 arg, int large)
{
	u32 head[4], class, status = ~0u, word = 0;
	struct discover_record *r;
	u64 params = 0;

	if (bpf_probe_read_user(head, sizeof(head), (void *)arg) ||
	    bpf_probe_read_user(&params, sizeof(params), (void *)(arg + 16)) ||
	    bpf_probe_read_user(&status, sizeof(status), (void *)(arg + (large ? 40 : 28))))
		return;
	if (status)
		return;
	class = head[3];
	if (class != DISCOVER_CLASS_ROOT && class != DISCOVER_CLASS_ROOT_NON_PRIV &&
	    class != DISCOVER_CLASS_ROOT_CLIENT && class != DISCOVER_CLASS_DEVICE &&
	    class != DISCOVER_CLASS_SUBDEVICE && class != DISCOVER_CLASS_GROUP &&
	    !is_channel_class(class))
		return;
	if (!is_nvidia(call->fd))
		return;
	r = record_begin(DISCOVER_ALLOC);
	if (!r)
		return;
	r->fd = call->fd;
	r->client = head[0];
	r->parent = head[1];
	r->object = head[2];
	r->class_id = class;
	if (class == DISCOVER_CLASS_ROOT || class == DISCOVER_CLASS_ROOT_NON_PRIV ||
	    class == DISCOVER_CLASS_ROOT_CLIENT) {
		u32 pid = r->pid;

		/*
		 * A new client's handle comes back in hObjectNew (and is its own root). From now on
		 * the process is watched.
		 */
		r->client = r->object;
		watch(pid, 0, 0);
	} else if (class == DISCOVER_CLASS_DEVICE && params) {
		if (!bpf_probe_read_user(&word, sizeof(word), (void *)params))
			r->device = word;
	} else if (class == DISCOVER_CLASS_GROUP && params) {
		if (!bpf_probe_read_user(&word, sizeof(word),
					 (void *)(params + DISCOVER_GROUP_ENGINE)))
			r->engine = word;
	} else if (is_channel_class(class) && params) {
		if (!bpf_probe_read_user(&word, sizeof(word),
					 (void *)(params + DISCOVER_CHANNEL_ENGINE(release))))
			r->engine = word;
		if (!bpf_probe_read_user(&word, sizeof(word),
					 (void *)(params + DISCOVER_CHANNEL_CID(release))))
			r->cid = word;
		if (!bpf_probe_read_user(&word, sizeof(word),
					 (void *)(params + DISCOVER_CHANNEL_USERD(release))))
			r->userd = word;
		bpf_probe_read_user(&r->userd_offset, sizeof(r->userd_offset),
				    (void *)(params + DISCOVER_CHANNEL_USERD_OFFSET(release)));
	}
	bpf_ringbuf_submit(r, 0);
}

static __always_inline void report_free(const struct call *call, u64 arg)
{
	struct discover_record *r;
	u32 w[4];

	if (bpf_probe_read_user(w, sizeof(w), (void *)arg) || w[3])
		return;
	if (!is_nvidia(call->fd))
		return;
	r = record_begin(DISCOVER_FREE);
	if (!r)
		return;
	r->fd = call->fd;
	r->client = w[0];
	r->parent = w[1];
	r->object = w[2];
	bpf_ringbuf_submit(r, 0);
}

static __always_inline void report_control(const struct call *call, u64 arg)
{
	struct discover_record *r;
	u32 head[3], status = ~0u;
	u64 params = 0, value = 0;
	u8 flag = 0;

	if (bpf_probe_read_user(head, sizeof(head), (void *)arg) ||
	    bpf_probe_read_user(&params, sizeof(params), (void *)(arg + 16)) ||
	    bpf_probe_read_user(&status, sizeof(status), (void *)(arg + 28)) || status)
		return;
	if (head[2] == DISCOVER_SET_TIMESLICE) {
		if (bpf_probe_read_user(&value, sizeof(value), (void *)params))
			return;
	} else {
		if (bpf_probe_read_user(&flag, sizeof(flag), (void *)params))
			return;
		value = flag;
	}
	if (!is_nvidia(call->fd))
		return;
	r = record_begin(DISCOVER_CONTROL);
	if (!r)
		return;
	r->fd = call->fd;
	r->client = head[0];
	r->object = head[1];
	r->class_id = head[2];
	r->value = value;
	bpf_ringbuf_submit(r, 0);
}

static __always_inline void report_dup(const struct call *call, u64 arg)
{
	struct discover_record *r;
	u32 w[7];

	if (bpf_probe_read_user(w, sizeof(w), (void *)arg) || w[6])
		return;
	if (!is_nvidia(call->fd))
		return;
	r = record_begin(DISCOVER_DUP);
	if (!r)
		return;
	r->fd = call->fd;
	r->client = w[0];
	r->parent = w[1];
	r->object = w[2];
	r->src_client = w[3];
	r->src_object = w[4];
	bpf_ringbuf_submit(r, 0);
}

/*
 * The call's arguments are kept from its entry: on some architectures the register of the first
 * argument holds the result at the exit, and the exit is where the driver's answer (handles,
 * status) can be read.
 */
SEC("raw_tp/sys_enter")
int on_sys_enter(struct bpf_raw_tracepoint_args *ctx)
{
	struct pt_regs *regs = (void *)ctx->args[0];
	struct call call = {};
	u64 id;

	if (ctx->args[1] != NR_IOCTL)
		return 0;
#if defined(__TARGET_ARCH_arm64)
	call.cmd = (u32)BPF_CORE_READ(regs, regs[1]);
#else
	call.cmd = (u32)BPF_CORE_READ(regs, si);
#endif
	if (!interesting(call.cmd))
		return 0;
#if defined(__TARGET_ARCH_arm64)
	call.fd = (int)BPF_CORE_READ(regs, regs[0]);
	call.arg = BPF_CORE_READ(regs, regs[2]);
#else
	call.fd = (int)BPF_CORE_READ(regs, di);
	call.arg = BPF_CORE_READ(regs, dx);
#endif
	if (call.cmd == RM_CONTROL && !interesting_control(call.arg))
		return 0;
	id = bpf_get_current_pid_tgid();
	if (bpf_map_update_elem(&calls, &id, &call, BPF_ANY))
		note_missed(DISCOVER_ALLOC);
	return 0;
}

SEC("raw_tp/sys_exit")
int on_sys_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct pt_regs *regs = (void *)ctx->args[0];
	struct call call, *saved;
	u64 id, arg;
	u32 cmd;

#if defined(__TARGET_ARCH_arm64)
	if (BPF_CORE_READ(regs, syscallno) != NR_IOCTL)
		return 0;
#else
	if (BPF_CORE_READ(regs, orig_ax) != NR_IOCTL)
		return 0;
#endif
	id = bpf_get_current_pid_tgid();
	saved = bpf_map_lookup_elem(&calls, &id);
	if (!saved)
		return 0;
	call = *saved;
	bpf_map_delete_elem(&calls, &id);
	if ((long)ctx->args[1] < 0)
		return 0;
	cmd = call.cmd;
	arg = call.arg;
	if (cmd == RM_XFER) {
		struct {
			u32 cmd, size;
			u64 ptr;
		} xfer;

		if (bpf_probe_read_user(&xfer, sizeof(xfer), (void *)arg))
			return 0;
		cmd = 0xc0004600u | (xfer.size & 0x3fff) << 16 | (xfer.cmd & 0xff);
		arg = xfer.ptr;
	}
	if (cmd == RM_ALLOC_48)
		report_alloc(&call, arg, 1);
	else if (cmd == RM_ALLOC_32)
		report_alloc(&call, arg, 0);
	else if (cmd == RM_FREE)
		report_free(&call, arg);
	else if (cmd == RM_DUP)
		report_dup(&call, arg);
	else if (cmd == RM_CONTROL)
		report_control(&call, arg);
	return 0;
}

/*
 * Membership goes from parent to child here, in the kernel, so that no allocation of the child can
 * come first.
 */
SEC("raw_tp/sched_process_fork")
int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *child = (void *)ctx->args[1];
	struct discover_record *r;
	u32 pid, tgid, parent, tid, value;
	struct discover_watched *w;

	pid = BPF_CORE_READ(child, pid);
	tgid = BPF_CORE_READ(child, tgid);
	if (pid != tgid) /* a thread */
		return 0;
	tgid = pid_in_namespace(child, tgid);
	if (!tgid)
		return 0;
	/* Of its number one may be there that has ended unseen. */
	forget(tgid);
	whoami(&parent, &tid);
	w = bpf_map_lookup_elem(&watched, &parent);
	if (!w)
		return 0;
	value = w->tag;
	if (!watch(tgid, value, 1))
		return 0;
	r = record_begin(DISCOVER_FORK);
	if (!r)
		return 0;
	r->ppid = parent;
	r->pid = tgid;
	r->tid = tgid;
	r->tag = value;
	if (bpf_core_field_exists(child->start_boottime))
		r->value = BPF_CORE_READ(child, start_boottime);
	bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("raw_tp/sched_process_exec")
int on_exec(struct bpf_raw_tracepoint_args *ctx)
{
	struct discover_record *r;
	u32 pid, tid;

	whoami(&pid, &tid);
	if (!bpf_map_lookup_elem(&watched, &pid))
		return 0;
	r = record_begin(DISCOVER_EXEC);
	if (r)
		bpf_ringbuf_submit(r, 0);
	return 0;
}

SEC("raw_tp/sched_process_exit")
int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct discover_record *r;
	u32 pid, tid;

	whoami(&pid, &tid);
	if (!bpf_map_lookup_elem(&watched, &pid))
		return 0;
	if (BPF_CORE_READ(task, signal, live.counter) > 0) /* other threads live on */
		return 0;
	/* Submitted before any other branch: the verifier of Linux 6.1 loses it there. */
	r = record_begin(DISCOVER_EXIT);
	if (r)
		bpf_ringbuf_submit(r, 0);
	forget(pid);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
