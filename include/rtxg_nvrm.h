/* SPDX-License-Identifier: MIT */
/*
 * rtxg_nvrm.h - independent synchronisation on an NVIDIA GPU: a program learns that its work has
 * ended from a word that the GPU wrote (FENCE), or from an interrupt that the GPU raised (NOTIFY),
 * without a call of the GPU's own API. This is section III.C of Linux-RTXG (2015) for the driver of
 * today: librtxg opens a channel of its own through the driver's resource manager (RM), which needs
 * no more rights than to open /dev/nvidia0.
 *
 *     rtx_nvrm_init(&nvrm, NULL);                      once a process and GPU
 *     rtx_nvrm_timeline(nvrm, NULL, &timeline);        once a stream
 *     cuLaunchKernel(..., stream, ...);                the program's own launch
 *     rtx_timeline_signal(timeline, stream, &value);   the stream will write value to the word
 *     rtx_timeline_wait(timeline, value, RTX_SYNC_NOTIFY, UINT64_MAX);   sleeps until it has
 *
 * or, in the middle of a task of rtxg.h, rtx_gpu_notify() with the member timeline, and
 * rtx_gpu_sync().
 *
 * How it works: a timeline is a 32-bit word in the program's memory and a channel that the GPU's
 * copy engine serves. The program's stream writes a number to the word behind its kernels. In the
 * channel stand an acquire of that number, a non-stalling interrupt, and a release of a fence with
 * a time stamp. The interrupt is a hint and has no sender; the word is the proof, and is read again
 * after each.
 *
 * CUDA graphs: signal behind the launch of the graph. A node that was captured writes the same
 * number at each launch, so rtx_timeline_signal refuses a stream that is being captured. To wait
 * for a place inside a graph, give the timeline a word of the program's own, and let a node count
 * it up or set the node's number before each launch (cuGraphExecBatchMemOpNodeSetParams).
 *
 * What cannot be ordered: work on a stream that writes no word.
 *
 * Functions return 0 or a negative errno, with words for it in rtx_strerror(). They may be called
 * by several threads at once. After a fork they give -ECHILD in the child, which may open its own.
 * The memory of a parent's word is not in its child, which must not look at rtx_timeline_word(). A
 * thread may be cancelled (pthread_cancel) in a wait, and is not in other calls. None is for a
 * handler of signals.
 * Times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef RTXG_NVRM_H
#define RTXG_NVRM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rtxg.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rtx_nvrm *rtx_nvrm_t;

/* Timelines that one rtx_nvrm_t has at most, and values that one timeline has armed at most. */
#define RTX_TIMELINES_MAX      16u
#define RTX_TIMELINE_ARMED_MAX 255u

/*
 * Opens the GPU for waits; rtx_nvrm_init of Linux-RTXG. Another handle of the same GPU shares the
 * driver's client, and has timelines of its own. device: a number in the order of the PCI
 * bus, a PCI address ("0000:3b:00.0") or a UUID ("GPU-..."); NULL = 0. -ENODEV no driver or no such
 * GPU, -EACCES no right to open /dev/nvidia*, -EOPNOTSUPP a driver or GPU without such channels,
 * -EFBIG a limit on files of less than a page (RLIMIT_FSIZE).
 */
int rtx_nvrm_init(rtx_nvrm_t *nvrm, const char *device);

/* Closes it with all timelines that are still open. Who waits gets -ECANCELED. */
int rtx_nvrm_close(rtx_nvrm_t nvrm);

/*
 * Makes a timeline. word: an aligned 32-bit word of the program's that its stream will write, in
 * memory that the GPU can reach and that is not freed before the timeline is closed; NULL = one of
 * librtxg's own, which is 0. -ENOSPC more than RTX_TIMELINES_MAX, -EINVAL a word that is not
 * aligned, -EFAULT memory that the driver cannot give to the GPU.
 */
int rtx_nvrm_timeline(rtx_nvrm_t nvrm, volatile uint32_t *word, rtx_timeline_t *timeline);
/*
 * The next timeline may have the same handle. After rtx_timeline_signal a context of CUDA must be
 * current, so that CUDA lets go of a word that is the program's own; pages of librtxg's own that it
 * keeps are not used again.
 */
int rtx_timeline_close(rtx_timeline_t timeline);

/* The word, for programs that write it by means of their own. NULL for a bad timeline. */
volatile uint32_t *rtx_timeline_word(rtx_timeline_t timeline);

/*
 * Lets a CUDA stream write the timeline's next number behind all that it has been given, by
 * cuStreamWriteValue32 of the program's own CUDA, whose current context must be the stream's.
 * stream: a CUstream or cudaStream_t; NULL = the default stream. value: the number. -ENOENT the
 * program has not loaded CUDA, -EBUSY a graph is being captured from the stream, -EIO CUDA refused.
 */
int rtx_timeline_signal(rtx_timeline_t timeline, void *stream, uint32_t *value);

/*
 * Asks for an interrupt when the word reaches value (that is, when (int32_t)(*word - value) >= 0),
 * or for its stamp alone where the end is foreseen. rtx_timeline_wait does so by itself; before the
 * wait it saves a little time. Numbers go forward: -ERANGE for one before the last that was armed
 * and not reached. -EAGAIN when RTX_TIMELINE_ARMED_MAX are outstanding, or one fewer on a timeline
 * that foresees.
 */
int rtx_timeline_arm(rtx_timeline_t timeline, uint32_t value);

/* Has the word reached value? No system call. False for a bad timeline. */
bool rtx_timeline_reached(rtx_timeline_t timeline, uint32_t value);

/*
 * Waits until the word has reached value. how: RTX_SYNC_FENCE looks at the word again and again
 * (with short sleeps under SCHED_DEADLINE, where yielding costs the budget), RTX_SYNC_NOTIFY sleeps
 * until the interrupt. A value that rtx_timeline_arm would refuse has none of its own: it is seen
 * by another's, or within 10 ms. until: absolute, UINT64_MAX = without end. -ETIMEDOUT, -EINTR a
 * signal was handled (nothing is lost: wait again), -ECANCELED closed by another thread, -ENODEV
 * the GPU was lost, -ERANGE the word went back (two streams write it), -EINVAL another way to wait.
 */
int rtx_timeline_wait(rtx_timeline_t timeline, uint32_t value, enum rtx_sync how,
		      uint64_t until_ns);

/*
 * how: RTX_SYNC_NOTIFY foresees. Where all but one of the last five uses took equally long (within
 * 10 us), a wait sleeps on a timer until about the end that is foreseen, and the GPU raises no
 * interrupt. RTX_FORESEE_LOOK wakes shortly before that end, looks at the word for 10 us at most
 * and 4 us on average, and asks for the interrupt if the value has not come: the thread goes on
 * some microseconds after the end and not after the way of an interrupt. RTX_FORESEE_SLEEP wakes
 * shortly after it, and looks for 3 us at most and 1 us on average: somewhat later, for less CPU
 * time. An end that comes earlier than foreseen is seen at the time that was foreseen. Uses of
 * lengths that differ, those of which several are outstanding or that several threads wait for, and
 * those of tasks whose host knows the word (rtx_gpu_notify) are waited for as without.
 */
enum rtx_foresee {
	RTX_FORESEE_OFF,
	RTX_FORESEE_LOOK,
	RTX_FORESEE_SLEEP,
};
int rtx_timeline_foresee(rtx_timeline_t timeline, enum rtx_foresee how);

/*
 * When the GPU saw the word reach an armed value: nanoseconds of the GPU's own clock (PTIMER, as
 * %globaltimer in CUDA). It comes some microseconds after the word and the interrupt. Kept for the
 * last RTX_TIMELINE_ARMED_MAX armed values. -ENOENT not armed or no longer kept, -EAGAIN not there
 * as yet.
 */
int rtx_timeline_stamp(rtx_timeline_t timeline, uint32_t value, uint64_t *gpu_ns);

struct rtx_timeline_stats {
	size_t size;
	uint64_t armed;	 /* values for which an interrupt was asked */
	uint64_t waits;	 /* that had to wait */
	uint64_t wakes;	 /* interrupts that woke a waiter, of this program's work or another's */
	uint64_t missed; /* values that were seen by looking, after no interrupt came in time */
	uint64_t looks;	 /* at the word, shortly before an end that was foreseen */
	uint64_t hits;	 /* of these, in which it came */
};
int rtx_timeline_stats(rtx_timeline_t timeline, struct rtx_timeline_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
