/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * engine.h - the host's engines as their interrupts see them: see engine.c.
 */
#ifndef RTXG_KMOD_ENGINE_H
#define RTXG_KMOD_ENGINE_H

#include <linux/types.h>

#include <rtxg/host.h>

struct khost_task;
struct task_struct;

/*
 * An interrupt is that of a GPU, made if it is not there. Its number; negative errno. Each is let
 * go once.
 */
int rtxg_engine_bind(char gpu[RTXG_HOST_NAME], u32 engine);
void rtxg_engine_unbind(u32 gpu, u32 engine);
/* Whether its completions are seen; under objects or lock, or as a hint. */
bool rtxg_engine_bound(u32 gpu, u32 engine);
/* That GPU says that something has ended on the engine. In any context. */
void rtxg_engine_interrupt(u32 gpu, u32 engine);

/* Whether a thread may own anything: it has not ended. In any context. */
bool rtxg_engine_may_own(const struct task_struct *thread);
/*
 * Who owns what an engine does: the thread of the task that holds it, else of the one that has
 * acquired the GPU as one of a pool. With a reference; NULL: none. Its effective priority, as Linux
 * counts; that of the highest thread that waits for the engine; INT_MAX: there is none. In any
 * context, but for waiting_prio, which takes a while.
 */
struct task_struct *rtxg_engine_owner(u32 gpu, u32 engine);
int rtxg_engine_owner_prio(u32 gpu, u32 engine);
int rtxg_engine_waiting_prio(u32 gpu, u32 engine);
/* Before the device is there: calls that from then on, see rtxg_host.owner_changed. */
void rtxg_engine_tell_owners(void (*changed)(u32 gpu, u32 engine));

/* The task has acquired that GPU as one of a pool, or has none of a pool any more; under lock. */
void rtxg_engine_pool_holder(u32 gpu, struct khost_task *task);
void rtxg_engine_pool_leaves(struct khost_task *task);

/* The calling thread wants the engine: what the engine does for its task is its own. */
void rtxg_engine_own(struct khost_task *task, u32 lane);
/* A thread waits for the engine. */
void rtxg_engine_ask(struct khost_task *task, u32 lane);

#endif
