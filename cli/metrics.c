// SPDX-License-Identifier: MIT
/*
 * metrics.c - `rtxg metrics`: the host's counters for Prometheus, on standard output, into a file
 * that the node exporter reads, or as an answer to a scrape; for systemd's reports, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rtxg.h>

#include "command.h"
#include "commands.h"
#include "message.h"
#include "metrics.h"
#include "metrics_serve.h"

static const struct option options[] = {
	{ "openmetrics", no_argument, NULL, 'o' },
	{ "textfile", required_argument, NULL, 't' },
	{ "http", no_argument, NULL, 'w' },
	{ "varlink", no_argument, NULL, 'v' },
	{ "proc", required_argument, NULL, 'p' },
	COMMON_OPTIONS,
	{ 0 },
};

static void print_help(void)
{
	fputs("Usage: rtxg metrics [OPTION...]\n\n"
	      "Prints what each vGPU and each program was entitled to and received, waits, broken "
	      "promises and failures,\n"
	      "as Prometheus reads it.\n\n"
	      "     --openmetrics      as OpenMetrics 1.0 (default: Prometheus's text 0.0.4)\n"
	      "     --textfile FILE    into a file, replaced in one step: for the node exporter's "
	      "folder of text files\n"
	      "     --http             answer scrapes at the socket that the service manager "
	      "passes (rtxg-metrics.socket)\n"
	      "     --varlink          the same in io.systemd.Metrics, for systemd-report "
	      "(rtxg-report.socket)\n"
	      "     --proc DIR         where the machine's /proc is, as in a container (default "
	      "/proc)\n"
	      " -h, --help             this text\n",
	      stdout);
}

/* A reader never sees half of it: the node exporter reads *.prom, which the new file is not yet. */
static int write_file(const char *path, const char *text, size_t size)
{
	char *fresh;
	int fd, error = 0;

	if (asprintf(&fresh, "%s.new.%d", path, (int)getpid()) < 0)
		return -ENOMEM;
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		error = -errno;
	for (size_t done = 0; !error && done < size;) {
		ssize_t n = write(fd, text + done, size - done);

		if (n < 0 && errno != EINTR)
			error = -errno;
		else if (n > 0)
			done += (size_t)n;
	}
	if (fd >= 0 && fchmod(fd, 0644) && !error)
		error = -errno;
	if (fd >= 0 && close(fd) && !error)
		error = -errno;
	if (!error && rename(fresh, path))
		error = -errno;
	if (error && fd >= 0)
		unlink(fresh);
	free(fresh);
	if (error)
		message_error("--textfile: %s cannot be written: %s", path, strerror(-error));
	return error;
}

int cmd_metrics(int argc, char **argv)
{
	const char *proc = "/proc", *file = NULL;
	bool http = false, varlink = false, openmetrics = false;
	struct metrics_out out = { 0 };
	int letter, error, written;

	while ((letter = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (letter) {
		case 'h':
			print_help();
			return EXIT_OK;
		case 'o':
			openmetrics = true;
			break;
		case 't':
			file = optarg;
			break;
		case 'w':
			http = true;
			break;
		case 'v':
			varlink = true;
			break;
		case 'p':
			proc = optarg;
			break;
		default:
			return message_try_help();
		}
	}
	if (optind < argc)
		return message_usage("'%s': no argument is accepted", argv[optind]);
	if ((http || varlink) && (file || openmetrics || (http && varlink)))
		return message_usage("%s goes with --proc only; a client says itself which form it "
				     "accepts",
				     http ? "--http" : "--varlink");
	if (http || varlink)
		return metrics_serve(http ? "--http" : "--varlink",
				     http ? &metrics_http : &metrics_varlink, proc);
	error = metrics_collect(&out, proc, openmetrics);
	if (out.failed) {
		message_error("there is no memory");
		return EXIT_FAILED;
	}
	if (file)
		written = write_file(file, out.text, out.size);
	else
		written = fwrite(out.text, 1, out.size, stdout) != out.size || fflush(stdout)
				  ? -errno
				  : 0;
	if (!file && written)
		message_error("writing: %s", strerror(-written));
	free(out.text);
	if (error)
		message_error("no host of rtxg answers: %s; 'systemctl start rtxgd.socket', or "
			      "'rtxg host start', starts one",
			      rtx_strerror()[0] ? rtx_strerror() : strerror(-error));
	return error || written ? EXIT_FAILED : EXIT_OK;
}
