/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policy.h - how one engine is shared among the vGPUs of its GPU: what a policy tells the engine,
 * and when the engine asks.
 *
 * A policy is one file, policy_<name>.c: its books, its callbacks, and its table at the end. It is
 * registered by one line in policies.h. docs/how-to/add-a-policy.md walks through one.
 *
 * A policy may not emit actions, set timers, or change an account other than by its books, its
 * heaps and its counters of throttling and overruns. It must be quick: it runs under the host's
 * lock, in the kernel possibly with interrupts off.
 */
#ifndef RTXG_CORE_POLICY_H
#define RTXG_CORE_POLICY_H

#include "state.h"

/**
 * struct core_usage - time for which a permit is charged
 * @all: charged
 * @contended: the part of it for which others were kept waiting
 * @alone: time with the engine at no one's cost, used or not
 */
struct core_usage {
	uint64_t all;
	uint64_t contended;
	uint64_t alone;
};

/**
 * struct core_policy - one policy
 *
 * The callbacks stand in the order of an account's life. One that is NULL has nothing to do, or
 * does what its description says.
 */
struct core_policy {
	/**
	 * @summary: what it does, in some ten plain words that follow the name in --help, in
	 * manual pages and in documents
	 */
	const char *summary;

	/**
	 * @reads: the GPU's parameters that it reads, RTXG_READS_*
	 */
	uint32_t reads;

	/**
	 * @shared: each vGPU holds a permit, independently of the others. Otherwise one vGPU at a
	 * time holds the engine.
	 */
	bool shared;

	/**
	 * @open: the engine begins under this policy, or the GPU's parameters have changed. Its
	 * books are zero unless it had this policy before.
	 */
	void (*open)(struct core_engine *engine);

	/**
	 * @reset: the account begins under this policy (its books are zero), or the GPU's
	 * parameters have changed (they are as they were)
	 */
	void (*reset)(struct core_account *account, uint64_t now);

	/**
	 * @settle: bring the books up to date: parameters are about to change, or a host wants to
	 * see them
	 */
	void (*settle)(struct core_account *account, uint64_t now);

	/**
	 * @changed: the vGPU's reservation, cap or period have changed
	 */
	void (*changed)(struct core_account *account, uint64_t now);

	/**
	 * @wake: the account's first waiter has come, and it holds no permit
	 */
	void (*wake)(struct core_account *account, uint64_t now);

	/**
	 * @place: the account has waiters and stands in no heap: put its node @ready into a heap of
	 * the engine or of the policy. If a time has to come first, put its node @wake into
	 * engine->wakes under that time: the account is placed again then. It may stand in both.
	 * Called again after each charge and each permit. NULL: into engine->ready, by @order.
	 */
	void (*place)(struct core_account *account, uint64_t now);

	/**
	 * @pick: which account gets the engine, which is free while some account has waiters?
	 * Returns NULL to keep it free, and then may set *look_again to when to ask again; an
	 * arrival asks anyway. NULL: the first of engine->ready.
	 */
	struct core_account *(*pick)(struct core_engine *engine, uint64_t now,
				     uint64_t *look_again);

	/**
	 * @peek: which account would get the engine if it were free now? A guess, which changes
	 * nothing; NULL for none. NULL: the first of engine->ready.
	 */
	struct core_account *(*peek)(const struct core_engine *engine);

	/**
	 * @permit: the account's first waiter is about to get a permit. Which one (RTXG_GRANT_*),
	 * and is its time at others' cost from the start (*contended)? NULL: good for one launch
	 * while others wait, and a lease otherwise.
	 */
	uint32_t (*permit)(struct core_account *account, uint64_t now, bool *contended);

	/**
	 * @displaces: must the holder of a lease stop launching? May lower *look_again to the time
	 * at which the answer changes. Present in policies that let a holder go on (RTXG_GRANT_
	 * REPORT) while others wait. NULL: it must as soon as others wait.
	 */
	bool (*displaces)(struct core_account *holder, uint64_t now, uint64_t *look_again);

	/**
	 * @charge: the account's holder has used this. holder->charged_ns is when that began.
	 */
	void (*charge)(struct core_account *account, const struct core_usage *usage, uint64_t now);

	/**
	 * @paused: the engine was kept free for so long, at others' cost, because the account,
	 * which holds no permit, was likely to be back soon. Present in policies that let an
	 * account be waited for (core_engine_awaits)
	 */
	void (*paused)(struct core_account *account, uint64_t ns, uint64_t now);

	/**
	 * @lends: the account has nothing to do. For so many ns from the end of its last launch on,
	 * what others with a reservation use is lent by it. NULL: none
	 */
	uint64_t (*lends)(const struct core_account *account);

	/**
	 * @ended: the account's permit has ended; it has been charged
	 */
	void (*ended)(struct core_account *account, uint64_t now);

	/**
	 * @forget: the account is about to vanish: it may stand nowhere in the engine's books.
	 * Returns whether the engine has to decide again.
	 */
	bool (*forget)(struct core_engine *engine, const struct core_account *account);

	/**
	 * @conserving: does a vGPU with these parameters get, beyond its reservation, what others
	 * leave? NULL: it does.
	 */
	bool (*conserving)(const struct rtxg_vgpu_params *params);

	/**
	 * @view: fill in what there is to show: credit_ns, deadline_ns
	 */
	void (*view)(const struct core_account *account, struct rtxg_account_view *view);
};

/*
 * The room that an account or an engine has for its policy's books, as the policy's own struct.
 * Zero when the policy begins there.
 */
#define core_books(owner, type)                                           \
	({                                                                \
		_Static_assert(sizeof(type) <= sizeof((owner)->books),    \
			       #type " needs more words than there are"); \
		(type *)(owner)->books;                                   \
	})

/* policy.c: the table of that number, which is known. */
const struct core_policy *core_policy_of(uint32_t number);

#endif
