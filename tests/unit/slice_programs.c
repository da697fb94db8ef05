// SPDX-License-Identifier: MIT
/*
 * slice_programs.c - the programs on the model GPU: they come, launch, wait, pause and end. See
 * slice_model.h.
 *
 * May not: decide who runs; the core does.
 */
#include "slice_model_internal.h"

/* The calls by which the host's lever sees the queues of a program that comes, and lets them go. */
#define CALLS_COMES 6u
#define CALLS_GOES  1u

uint64_t model_kernel_of(const struct process *c)
{
	if (c->p.with && c->done % 2)
		return c->p.collective_ns;
	return c->p.requests_per_s && !c->reads ? c->p.step_ns : c->p.kernel_ns;
}

static void be_born(struct model *m, uint32_t i)
{
	struct process *c = &m->c[i];

	m->lives++;
	c->phase = COMPUTING;
	c->until = m->now + c->p.building_ns;
	c->born = m->came = m->now;
	c->round = 0;
	c->put = c->done = c->seen_put = 0;
	c->kernel = c->p.kernel_ns;
	c->stopped = c->going = false;
	c->slice = STOCK;
	c->told = -1;
	c->next_look = m->now + FIRST_LOOK;
	model_feed(m, (struct rtxg_slice_event){
			      .type = RTXG_SLICE_EV_ADD, .context = i, .tenant = c->p.tenant });
	model_calls(m, CALLS_COMES);
}

static void die(struct model *m, uint32_t i)
{
	struct process *c = &m->c[i];
	uint32_t k, n = 0;

	if (m->on == (int)i) {
		m->saving = 0;
		model_go_off(m);
	}
	for (k = 0; k < m->pending_count; k++)
		if (m->pending[k].action.context != i)
			m->pending[n++] = m->pending[k];
	m->pending_count = n;
	m->lives++;
	c->phase = ABSENT;
	c->until = m->now + c->p.rest_ns;
	c->arrived = 0;
	model_feed(m, (struct rtxg_slice_event){ .type = RTXG_SLICE_EV_REMOVE, .context = i });
	model_calls(m, CALLS_GOES);
}

static void launch(struct model *m, struct process *c)
{
	while (c->left && c->put < c->done + c->p.depth) {
		if (c->put == c->done && !c->arrived) {
			c->arrived = m->now ? m->now : 1;
			c->bound = model_promised(m, c);
		}
		c->put++;
		c->left--;
	}
	if (!c->left)
		c->phase = WAITING;
}

static void round_done(struct model *m, struct process *c)
{
	if (c->stats.round_count < MODEL_WAITS)
		c->stats.round_ns[c->stats.round_count++] = m->now - c->launched_from;
	c->stats.rounds++;
	c->round++;
	c->phase = COMPUTING;
	c->until = m->now + model_between(m, c->p.cpu_ns / 2, c->p.cpu_ns * 3 / 2);
	if (c->p.period_ns) {
		c->phase = PAUSING;
		c->until = (m->now / c->p.period_ns + 1) * c->p.period_ns +
			   model_between(m, 0, c->p.jitter_ns);
	} else if (c->p.burst && c->round % c->p.burst == 0) {
		c->stats.bursts++;
		c->phase = PAUSING;
		c->until = m->now + model_between(m, c->p.pause_min_ns, c->p.pause_max_ns);
	}
}

/* Requests come whatever the GPU does: the same ones in each run. */
static void requests_come(struct model *m, struct process *c)
{
	if (model_next_random(&c->seed) % (MODEL_S / STEP) >= c->p.requests_per_s)
		return;
	if (c->waiting < MODEL_WAITS)
		c->came[c->waiting++] = m->now;
}

static void launch_round(struct model *m, struct process *c, uint32_t launches)
{
	c->phase = LAUNCHING;
	c->left = launches;
	c->kernel = model_kernel_of(c);
	c->launched_from = m->now;
}

/* What an engine does next: a prompt, unless it has just read one; then a step. */
static void serve(struct model *m, struct process *c)
{
	bool free = false, running = false;

	for (uint32_t k = 0; k < c->p.slots; k++) {
		free = free || !c->tokens_left[k];
		running = running || c->tokens_left[k];
	}
	c->reads = !c->reads && free && c->served < c->waiting;
	if (c->reads)
		launch_round(m, c, c->p.launches);
	else if (running)
		launch_round(m, c, 1);
	else
		c->until = m->now + 200 * US;
}

static void token(struct process *c, uint32_t k, uint64_t now)
{
	if (c->stats.between_count < MODEL_TOKENS)
		c->stats.between_ns[c->stats.between_count++] = now - c->last_token[k];
	c->last_token[k] = now;
	c->tokens_left[k]--;
}

static void served(struct model *m, struct process *c)
{
	uint32_t k;

	c->phase = COMPUTING;
	c->until = m->now + model_between(m, c->p.cpu_ns / 2, c->p.cpu_ns * 3 / 2);
	if (!c->reads) {
		for (k = 0; k < c->p.slots; k++)
			if (c->tokens_left[k])
				token(c, k, m->now);
		return;
	}
	for (k = 0; c->tokens_left[k]; k++)
		;
	c->tokens_left[k] = c->p.tokens;
	c->last_token[k] = m->now;
	if (c->stats.first_count < MODEL_WAITS)
		c->stats.first_ns[c->stats.first_count++] = m->now - c->came[c->served];
	c->served++;
}

void model_program_step(struct model *m, uint32_t i)
{
	struct process *c = &m->c[i];

	if (c->phase == ABSENT) {
		if (m->now >= c->p.start_ns && m->now >= c->until)
			be_born(m, i);
		return;
	}
	if (c->p.life_ns && m->now >= c->born + c->p.life_ns) {
		die(m, i);
		return;
	}
	if (c->p.requests_per_s)
		requests_come(m, c);
	if ((c->phase == COMPUTING || c->phase == PAUSING) && m->now >= c->until) {
		uint32_t varies = c->p.launches / 100 * c->p.vary;

		if (c->p.requests_per_s)
			serve(m, c);
		else
			launch_round(m, c,
				     (uint32_t)model_between(m, c->p.launches - varies,
							     c->p.launches + varies));
	}
	if (c->phase == LAUNCHING)
		launch(m, c);
	if (c->phase != WAITING || c->put != c->done)
		return;
	if (c->p.requests_per_s)
		served(m, c);
	else
		round_done(m, c);
}
