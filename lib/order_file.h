/* SPDX-License-Identifier: MIT */
/*
 * order_file.h - an order as a file. Not installed.
 *
 * The body is the trace of kernel-IRS: {(tid,[c1:...:cN]),...}. Thread tid, from 1, may make its
 * access number c_tid, from 0, once each other thread j has completed c_j accesses. What stands
 * before the body is optional, a word a line:
 *
 *     rtxg-order 1                  the format
 *     program NAME                  what was recorded
 *     variables NAME...             whose accesses count; * is all but the stack's
 *     locks                         steps of mutexes, conditions and semaphores count
 *     others free                   threads that are not listed are free
 *     others last                   they come after all that is listed: the record was cut short
 *     thread 1 main.2 accesses 75   a thread's place among those who start threads, and its length
 *     thread 2 main.1 accesses 9 cut   the record ended before the thread did
 *     {
 *     (1,[5:3]),                    # a comment, kept with the entry
 *     }
 */
#ifndef RTX_LIB_ORDER_FILE_H
#define RTX_LIB_ORDER_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "rtxg_order_core.h"

#define RTX_ORDER_NAME	    64 /* bytes of a thread's name, with the end */
#define RTX_ORDER_VARIABLES 64

struct rtx_order_file {
	struct rtxg_order_shape shape;
	struct rtxg_order_entry *entry; /* marks are lines */
	struct rtxg_order_need *need;
	char **comment; /* of each entry; NULL: none */
	/* of each thread, with the one that a thread which was cut short would have made next */
	uint32_t *accesses;
	bool *cut; /* each thread */
	char (*name)[RTX_ORDER_NAME];
	char *program; /* NULL: not said */
	char *variable[RTX_ORDER_VARIABLES];
	uint32_t variables; /* 0: not said */
	bool all;	    /* variables is * */
	bool locks;
	bool others_free, others_last;
	char error[512]; /* the last one in words */
};

/* 0 or a negative errno, with words in file->error that name the line. */
int rtx_lib_order_file_read(struct rtx_order_file *file, const char *path);
int rtx_lib_order_file_parse(struct rtx_order_file *file, const char *name, const char *text,
			     size_t size);
/* Loads what was read into memory that the caller frees; path is for words. */
int rtx_lib_order_file_load(struct rtx_order_file *file, const char *path, struct rtxg_order *order,
			    void **memory);
int rtx_lib_order_file_write(const struct rtx_order_file *file, FILE *out);
void rtx_lib_order_file_free(struct rtx_order_file *file);

/* Why an order broke, in words. names may be NULL: threads are numbers then. */
void rtx_lib_order_break_words(const struct rtxg_order_break *broken, char (*names)[RTX_ORDER_NAME],
			       char *text, size_t size);

#endif
