/* SPDX-License-Identifier: MIT */
/*
 * order.h - what the subcommands of `rtxg order` share: the program that is started, with the
 * memory that it shares with us.
 */
#ifndef RTXG_CLI_ORDER_H
#define RTXG_CLI_ORDER_H

#include <stdbool.h>

#include "../lib/order_area.h"
#include "order_symbols.h"

struct order_program {
	char path[4096]; /* found as a shell finds it */
	struct order_symbols symbols;
	struct area *area; /* the program may write anything into it */
	size_t size;	   /* of the area and what is behind it */
	int fd;
};

int order_record(int argc, char **argv);
int order_run(int argc, char **argv);

/* Finds the program and its variables. 0, or an exit status after saying what is wrong. */
int order_program_open(struct order_program *program, const char *name);
void order_program_close(struct order_program *program);
/* Memory with room behind the area, for whoever fills it in. */
int order_program_share(struct order_program *program, enum area_mode mode, size_t room);
/* Chooses accesses by name; * is all. */
int order_program_variables(struct order_program *program, char *const *names, uint32_t count);
/* Starts it and waits for its end. Its exit status, or of ours from 125 on, after saying so. */
int order_program_run(struct order_program *program, char **argv);
/* Whether it recorded or followed anything; says what to do, if not. */
bool order_program_attached(const struct order_program *program);

/* Turns the area's record into an order. */
int order_derive(const struct order_program *program, struct rtx_order_file *file);

#endif
