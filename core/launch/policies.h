/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * policies.h - the one list of GPU policies: how the virtual GPUs of one GPU share its engines.
 *
 * A line registers a policy. POLICY(WFQ, wfq) gives it the constant RTXG_GPU_WFQ and the name
 * "wfq", and says that its table is wfq_policy, in policy_wfq.c. No other file of the core and of
 * the hosts names a policy: they ask for names, summaries and answers by number.
 *
 * The list stands in a header because its lines are numbers too: they cross the boundary to the
 * module (uapi/rtxg/host.h), they stand in recordings, and user space has to know them without the
 * tables. A number belongs to its policy for good: append, never reorder, never remove.
 */
#ifndef RTXG_POLICIES_H
#define RTXG_POLICIES_H

/* clang-format off */
#define RTXG_GPU_POLICY_LIST(POLICY) \
	POLICY(NULL, null) \
	POLICY(FIFO, fifo) \
	POLICY(CREDIT, credit) \
	POLICY(BAND, band) \
	POLICY(CBS, cbs) \
	POLICY(WFQ, wfq) \
	POLICY(TBS, tbs)
/* clang-format on */

/* The policy of a GPU for which none was chosen. */
#define RTXG_GPU_POLICY_DEFAULT RTXG_GPU_CBS

#define RTXG_GPU_POLICY_NUMBER(WORD, word) RTXG_GPU_##WORD,
enum rtxg_gpu_policy { RTXG_GPU_POLICY_LIST(RTXG_GPU_POLICY_NUMBER) RTXG_GPU_POLICIES };
#undef RTXG_GPU_POLICY_NUMBER

/* Their names as one literal, each after a space. */
#define RTXG_GPU_POLICY_SPACED(WORD, word) " " #word
#define RTXG_GPU_POLICY_NAMES		   RTXG_GPU_POLICY_LIST(RTXG_GPU_POLICY_SPACED)

#endif
