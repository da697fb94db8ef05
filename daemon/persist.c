// SPDX-License-Identifier: MIT
/*
 * persist.c - a vGPU as a drop-in of the configuration, rtxg.conf.d/50-vgpu-NAME.conf in the
 * administrator's folder, or the user's: what `systemctl set-property` does for a unit. The file
 * says all that the vGPU has, also what is as it would be without it, so that it means the same
 * whatever other files say. May not: read a configuration.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "binding.h"
#include "config_files.h"
#include "persist.h"

#define PATH_SIZE	   700
#define CGROUP_WRITTEN_MAX 180u /* a line has at most 198 bytes */

static void path_of(const struct daemon *d, const char *name, char path[PATH_SIZE])
{
	char folder[512];

	config_folder(d, folder);
	snprintf(path, PATH_SIZE, "%s/rtxg.conf.d/50-vgpu-%s.conf", folder, name);
}

/* Folders of a path that are missing. 0 or an errno. */
static int make_folders(const char *path)
{
	char folder[PATH_SIZE];

	snprintf(folder, sizeof(folder), "%s", path);
	for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = 0;
		if (mkdir(folder, 0755) && errno != EEXIST && access(folder, F_OK))
			return errno;
		*at = '/';
	}
	return 0;
}

static void put_time(FILE *f, const char *key, uint64_t ns)
{
	if (!ns)
		fprintf(f, "%s=default\n", key);
	else if (ns % NS_PER_MS == 0)
		fprintf(f, "%s=%llums\n", key, (unsigned long long)(ns / NS_PER_MS));
	else if (ns % 1000 == 0)
		fprintf(f, "%s=%lluus\n", key, (unsigned long long)(ns / 1000));
	else
		fprintf(f, "%s=%lluns\n", key, (unsigned long long)ns);
}

static void put_vgpu(FILE *f, const struct daemon *d, const struct vgpu *vgpu)
{
	const struct rtxg_vgpu_params *p = &vgpu->params;

	fprintf(f, "# Written by rtxg vgpu --persist; \"rtxg vgpu rm %s\" removes it.\n[VGPU %s]\n",
		vgpu->name, vgpu->name);
	if (vgpu->gpu[0])
		fprintf(f, "GPU=%s\n", vgpu->gpu);
	fprintf(f, "GPUMin=%.10g%%\nGPUQuota=%.10g%%\n", p->min_ppm / 1e4, p->max_ppm / 1e4);
	if (p->weight)
		fprintf(f, "GPUWeight=%u\n", p->weight);
	else
		fputs("GPUWeight=default\n", f);
	fprintf(f, "GPUPriority=%u\n", p->priority);
	put_time(f, "GPUPeriodSec", p->period_ns);
	put_time(f, "GPULatencySec", vgpu->latency_ns);
	put_time(f, "GPUQuantumSec", vgpu->quantum_ns);
	if (vgpu->memory_bytes)
		fprintf(f, "GPUMemoryMax=%llu\n", (unsigned long long)vgpu->memory_bytes);
	else
		fputs("GPUMemoryMax=default\n", f);
	fprintf(f, "TaskPolicy=%s\nTaskPriority=%u\n", rtxg_task_policy_name(p->policy),
		vgpu->task_priority);
	for (uint32_t i = 0; i < vgpu->users_count; i++)
		fprintf(f, "%s%s%s", i ? " " : "Users=", vgpu->users[i],
			i + 1 == vgpu->users_count ? "\n" : "");
	for (uint32_t i = 0; i < d->bindings_count; i++)
		if (d->bindings[i].vgpu == vgpu && !d->bindings[i].uid && !d->bindings[i].transient)
			fprintf(f, "Cgroup=%s\n", d->bindings[i].cgroup);
}

/* The file is there as a whole or not at all, also after a crash of the machine. 0 or an errno. */
static int replace(const char *path, const struct daemon *d, const struct vgpu *vgpu)
{
	char new[PATH_SIZE + 8], folder[PATH_SIZE];
	int fd, error = 0, dir;
	FILE *f;

	/* Not NAME.conf: it is not read before it is whole. */
	snprintf(new, sizeof(new), "%s.new", path);
	unlink(new);
	fd = open(new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return errno;
	f = fdopen(fd, "w");
	if (!f) {
		error = errno;
		close(fd);
	} else {
		put_vgpu(f, d, vgpu);
		if (fflush(f) || fsync(fd))
			error = errno;
		if (fclose(f) && !error)
			error = errno;
	}
	if (!error && rename(new, path))
		error = errno;
	if (error) {
		unlink(new);
		return error;
	}
	snprintf(folder, sizeof(folder), "%s", path);
	*strrchr(folder, '/') = 0;
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0) {
		fsync(dir);
		close(dir);
	}
	return 0;
}

/* What a line of the configuration cannot hold: NULL, or a cgroup of the vGPU. */
static const char *unwritable(const struct daemon *d, const struct vgpu *vgpu)
{
	for (uint32_t i = 0; i < d->bindings_count; i++) {
		const char *name = d->bindings[i].cgroup;

		if (d->bindings[i].vgpu == vgpu && !d->bindings[i].uid &&
		    !d->bindings[i].transient &&
		    (strlen(name) > CGROUP_WRITTEN_MAX || strpbrk(name, " ;#")))
			return name;
	}
	return NULL;
}

int persist_write(struct daemon *d, struct vgpu *vgpu, char *why, size_t size)
{
	char path[PATH_SIZE];
	int error;

	if (vgpu->origin == ORIGIN_TRANSIENT) {
		snprintf(why, size,
			 "vGPU %s ends with the process that made it; make another one to keep it",
			 vgpu->name);
		return -EINVAL;
	}
	if (unwritable(d, vgpu)) {
		snprintf(why, size,
			 "cgroup %.300s cannot be written into the configuration: at most %u bytes "
			 "without a space, ; or # are accepted; name its slice instead",
			 unwritable(d, vgpu), CGROUP_WRITTEN_MAX);
		return -EINVAL;
	}
	path_of(d, vgpu->name, path);
	error = make_folders(path);
	if (!error)
		error = replace(path, d, vgpu);
	if (error) {
		snprintf(why, size,
			 "%.300s cannot be written: %s; make it writable for rtxgd, or leave "
			 "--persist out",
			 path, strerrordesc_np(error));
		return -error;
	}
	for (uint32_t i = 0; i < d->bindings_count; i++)
		if (d->bindings[i].vgpu == vgpu && !d->bindings[i].uid && !d->bindings[i].transient)
			d->bindings[i].configured = true;
	vgpu->persistent = true;
	vgpu->changed = false;
	vgpu->configured = true;
	if (vgpu->origin == ORIGIN_RUNTIME) {
		vgpu->origin = ORIGIN_CONFIG;
		snprintf(vgpu->source, sizeof(vgpu->source), "%.253s:2", path);
	}
	return 0;
}

int persist_remove(const struct daemon *d, const char *name, char *why, size_t size)
{
	char path[PATH_SIZE];

	path_of(d, name, path);
	if (!unlink(path) || errno == ENOENT)
		return 0;
	snprintf(
		why, size,
		"vGPU %s is removed, but %.300s is not: %s; remove that file, or the vGPU is there "
		"again after the next start",
		name, path, strerrordesc_np(errno));
	return -errno;
}

bool persist_exists(const struct daemon *d, const char *name)
{
	char path[PATH_SIZE];

	path_of(d, name, path);
	return !access(path, F_OK);
}
