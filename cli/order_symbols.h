/* SPDX-License-Identifier: MIT */
/*
 * order_symbols.h - names in a program's file: of its variables by libelf, of lines by addr2line.
 */
#ifndef RTXG_CLI_ORDER_SYMBOLS_H
#define RTXG_CLI_ORDER_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

struct order_symbol {
	uint64_t low, high; /* as the file numbers them */
	char *name;
};

struct order_symbols {
	struct order_symbol *list; /* variables, by address */
	size_t count;
};

/* 0, or a negative errno after saying what is wrong with the file. */
int order_symbols_read(struct order_symbols *symbols, const char *path);
void order_symbols_free(struct order_symbols *symbols);
/* The one at this address, or NULL. */
const struct order_symbol *order_symbols_at(const struct order_symbols *symbols, uint64_t address);

/*
 * "file.c:12" for each address of a file, to be freed; NULL where it is not known. Without
 * addr2line or debugging information none is.
 */
char **order_symbols_lines(const char *path, const uint64_t *addresses, size_t count);

#endif
