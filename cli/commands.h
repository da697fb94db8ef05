/* SPDX-License-Identifier: MIT */
/*
 * commands.h - the subcommands of `rtxg`, one a file: each takes its arguments and returns the exit
 * status.
 */
#ifndef RTXG_CLI_COMMANDS_H
#define RTXG_CLI_COMMANDS_H

int cmd_run(int argc, char **argv);
int cmd_set(int argc, char **argv);
int cmd_get(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_vgpu(int argc, char **argv);
int cmd_gpu(int argc, char **argv);
int cmd_host(int argc, char **argv);
int cmd_history(int argc, char **argv);
int cmd_order(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_metrics(int argc, char **argv);
int cmd_limits(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

#endif
