// SPDX-License-Identifier: (MIT OR GPL-2.0-only)
/*
 * lane.c - the state of one engine: who is owed what, and who has to be woken for it. Decides,
 * and does nothing: may not call OpenCL or librtxg, sleep, or read a clock.
 */
#include "lane.h"

#define MS	     1000000ull
#define ADMITTED_MAX 16 /* librtxg allows 32 launches outstanding */
/* how long an engine counts as contended after the last sign of it */
#define CONTENDED_NS (200 * MS)
/* looks after which the helper sleeps, or looks less often */
#define QUIET_LOOKS 8
#define VAIN_LOOKS  8

bool lane_room(const struct lane *l, uint64_t est_ns, uint64_t ahead_ns)
{
	if (!l->admitted)
		return true;
	if (l->admitted >= ADMITTED_MAX)
		return false;
	if (l->outstanding_ns + est_ns <= ahead_ns)
		return true;
	/*
	 * While no other task wants the engine, one long command may stand behind another, or the
	 * device would idle between.
	 */
	return !l->contended && l->admitted < 2;
}

bool lane_at_once(const struct lane *l, uint64_t est_ns, uint64_t ahead_ns)
{
	return !l->ready && !l->missed && lane_room(l, est_ns, ahead_ns);
}

bool lane_join(struct lane *l, uint64_t est_ns, uint64_t ahead_ns, bool revoked)
{
	if (l->ready || l->outstanding_ns + est_ns > ahead_ns || revoked)
		return false;
	l->outstanding_ns += est_ns;
	return true;
}

enum lane_admission lane_admission(const struct lane *l, uint64_t est_ns, uint64_t ahead_ns,
				   bool revoked)
{
	if (!l->ready || l->closed || l->missed)
		return LANE_STOP;
	if (lane_room(l, est_ns, ahead_ns))
		return LANE_TRY;
	return revoked ? LANE_ASK_EARLY : LANE_STOP;
}

bool lane_admit(struct lane *l, uint64_t est_ns)
{
	l->admitted++;
	l->outstanding_ns += est_ns;
	l->launched = true;
	l->begun = true;
	/* The program need not look again: it may wait for something else for ever. */
	return l->asleep;
}

static void contended(struct lane *l, uint64_t now)
{
	l->contended = true;
	l->contended_at = now;
}

bool lane_missed(struct lane *l, uint64_t now)
{
	l->missed = true;
	/* The first permit of all is waited for where no other task wants the engine, too. */
	if (l->launched)
		contended(l, now);
	return true;
}

void lane_finish(struct lane *l, uint64_t est_ns)
{
	l->admitted--;
	l->outstanding_ns -= est_ns;
	l->progressed = true;
	l->found = true;
}

bool lane_reported(const struct lane *l)
{
	/* It sleeps for that only where the engine is contended. */
	return !l->admitted && l->contended;
}

bool lane_watches(const struct lane *l, bool awaited)
{
	return l->admitted && (l->ready || awaited);
}

enum lane_arming lane_arming(bool armed, enum lane_oldest oldest)
{
	if (armed || oldest == LANE_SILENT)
		return LANE_LEAVE; /* a call under way looks when it leaves; else a marker comes */
	return oldest == LANE_ENDED ? LANE_LOOK_AGAIN : LANE_ARM;
}

bool lane_due(const struct lane *l, bool failed, bool awaited)
{
	return failed || awaited || l->ready;
}

bool lane_leaves(const struct lane *l)
{
	return !l->admitted || l->missed;
}

void lane_look(struct lane *l)
{
	l->found = false;
}

void lane_look_ends(struct lane *l)
{
	if (l->found)
		l->vain = 0;
	else if (l->vain < VAIN_LOOKS)
		l->vain++;
}

bool lane_marks(const struct lane *l, bool revoked)
{
	return l->admitted && (l->contended || l->missed || !l->progressed || revoked);
}

enum lane_next lane_next(struct lane *l, uint64_t now, bool revoked)
{
	l->progressed = false;
	/* What wanted the permit failed: the next one looks for it by itself. */
	if (!l->ready)
		l->missed = false;
	if (l->contended && now - l->contended_at > CONTENDED_NS)
		l->contended = false;
	if (l->ready && l->missed && !l->closed) {
		/* A call that returns meanwhile has its end told of, however long the wait is. */
		if (l->admitted)
			contended(l, now);
		return LANE_ASK;
	}
	if (l->admitted && revoked) {
		contended(l, now);
		return LANE_DRAIN;
	}
	if (l->begun)
		l->quiet = 0;
	else if (l->quiet < QUIET_LOOKS)
		l->quiet++;
	l->begun = false;
	if (l->admitted || l->ready || (l->quiet < QUIET_LOOKS && !revoked))
		return l->vain == VAIN_LOOKS && !l->quiet && !l->contended ? LANE_LISTEN_ON
									   : LANE_LISTEN;
	l->asleep = true;
	return LANE_SLEEP;
}

bool lane_asks(bool drains, bool armed)
{
	return !drains || armed;
}

void lane_woken(struct lane *l)
{
	l->asleep = false;
	l->quiet = 0;
}

enum lane_answer lane_answered(struct lane *l, int err, bool awaited, uint64_t now)
{
	bool closed = l->closed;

	l->missed = false;
	if (!err) {
		if (l->launched || awaited)
			contended(l, now);
		return l->ready ? LANE_GRANTED : LANE_GIVE_BACK;
	}
	if (err == -EINTR || err == -EAGAIN || err == -ETIMEDOUT) {
		l->missed = true;
		return LANE_AGAIN;
	}
	l->closed = true;
	return closed ? LANE_AGAIN : LANE_CLOSED;
}
