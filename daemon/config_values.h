/* SPDX-License-Identifier: MIT */
/* config_values.h - a value in a line of the configuration: see config_values.c. */
#ifndef RTXGD_CONFIG_VALUES_H
#define RTXGD_CONFIG_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "40%", "12.5%". 0 or -EINVAL. */
int config_share(const char *text, uint32_t *ppm);
/* systemd's time spans: "30ms", "1s 500ms", "1.5s"; a bare number is seconds. 0 or -EINVAL. */
int config_duration(const char *text, uint64_t *ns);

/* The others: whether it is one, and from min to max. */
bool config_number(const char *text, uint64_t min, uint64_t max, uint64_t *value);
/* systemd's sizes, "512M", "1.5G", of 1024; bytes. */
bool config_size(const char *text, uint64_t min, uint64_t max, uint64_t *value);
/* The number of a word; name: the word of a number, NULL past the last. */
bool config_word(const char *text, const char *(*name)(uint32_t), uint32_t *value);
/* A text that is not empty and fits. */
bool config_copy(char *to, size_t size, const char *from);

#endif
