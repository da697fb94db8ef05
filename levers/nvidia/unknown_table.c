// SPDX-License-Identifier: MIT
/*
 * unknown_table.c - see unknown_table.h. May not: look for a process.
 */
#include <string.h>
#include "state.h"
#include "subuid.h"
#include "unknown_table.h"

/*
 * A look takes a tenth of a second, and any user may have processes that are looked for. So each
 * user has a part of the time for that, and a part of the table.
 */
uint32_t nv_unknown_user(struct lever_nvidia *l, uint32_t pid)
{
	return rtx_lib_subuid_account(l->sys->owner(l->sys->ctx, (int)pid), NULL) % NV_USERS;
}

/* A free place; else one of the user who has most of them. */
static struct nv_unknown *make_place(struct lever_nvidia *l)
{
	uint32_t has[NV_USERS] = { 0 }, most = 0;

	for (uint32_t i = 0; i < NV_UNKNOWN; i++) {
		if (!l->unknown[i].pid)
			return &l->unknown[i];
		has[l->unknown[i].user]++;
	}
	for (uint32_t i = 0; i < NV_USERS; i++)
		most = has[i] > has[most] ? i : most;
	while (l->unknown[l->unknown_next++ % NV_UNKNOWN].user != most)
		;
	return &l->unknown[(l->unknown_next - 1) % NV_UNKNOWN];
}

struct nv_unknown *nv_unknown_of(struct lever_nvidia *l, uint32_t pid, bool make)
{
	struct nv_unknown *u;

	for (uint32_t i = 0; i < NV_UNKNOWN; i++)
		if (l->unknown[i].pid == pid)
			return &l->unknown[i];
	if (!make)
		return NULL;
	u = make_place(l);
	*u = (struct nv_unknown){ .pid = pid, .user = nv_unknown_user(l, pid) };
	return u;
}

bool nv_has_no_place(struct lever_nvidia *l, uint32_t pid, const char *remedy)
{
	struct nv_unknown *u = nv_unknown_of(l, pid, true);
	bool said = u->remedy == remedy;

	u->remedy = remedy;
	u->waits = true;
	u->found = false;
	u->again = nv_now(l) + NV_UNKNOWN_PAUSE_MAX;
	return said;
}

void nv_is_read(struct lever_nvidia *l, uint32_t pid)
{
	const struct nv_unknown *u = nv_unknown_of(l, pid, false);

	if (u && u->waits && !u->remedy)
		nv_known_now(l, pid);
}

void nv_known_now(struct lever_nvidia *l, uint32_t pid)
{
	for (uint32_t i = 0; i < NV_UNKNOWN; i++)
		if (l->unknown[i].pid == pid)
			memset(&l->unknown[i], 0, sizeof(l->unknown[i]));
}

void nv_unknown_prune(struct lever_nvidia *l)
{
	for (uint32_t i = 0; i < NV_UNKNOWN; i++)
		if (l->unknown[i].pid && !l->sys->alive(l->sys->ctx, (int)l->unknown[i].pid))
			memset(&l->unknown[i], 0, sizeof(l->unknown[i]));
}
