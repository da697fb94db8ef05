// SPDX-License-Identifier: MIT
/*
 * nbody.c - moves bodies under their mutual gravity: one kernel a job, which computes --work
 * partners for each body. An ordinary OpenCL program; it knows nothing of rtxg.
 */
#include <math.h>

#include "host.h"

#define BODIES 4096

static const char source[] = "__kernel void pull(__global const float4 *body, __global float4 "
			     "*speed, uint bodies, uint partners)\n"
			     "{\n"
			     "	size_t i = get_global_id(0);\n"
			     "	float4 me = body[i];\n"
			     "	float3 force = (float3)(0.0f);\n"
			     "	for (uint k = 1; k <= partners; k++) {\n"
			     "		float4 other = body[k % bodies];\n"
			     "		float3 d = other.xyz - me.xyz;\n"
			     "		float r2 = dot(d, d) + 1e-3f;\n"
			     "		force += d * (other.w * rsqrt(r2 * r2 * r2));\n"
			     "	}\n"
			     "	speed[i].xyz += force * 1e-4f;\n"
			     "}\n";

int main(int argc, char **argv)
{
	static cl_float4 body[BODIES], speed[BODIES];
	size_t global = BODIES, local = 64;
	cl_uint bodies = BODIES, partners;
	unsigned int seed = 1;
	double energy = 0;
	unsigned long done;
	struct host h;
	cl_mem memory[2];
	cl_int err;

	host_start(&h, argc, argv, source, "pull");
	for (int i = 0; i < BODIES; i++)
		for (int k = 0; k < 4; k++)
			body[i].s[k] =
				(float)(rand_r(&seed) % 2000) / 1000.0f - (k < 3 ? 1.0f : 0.0f);
	memory[0] = clCreateBuffer(h.context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof(body),
				   body, &err);
	check(err, "clCreateBuffer");
	memory[1] = clCreateBuffer(h.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
				   sizeof(speed), speed, &err);
	check(err, "clCreateBuffer");
	partners = (cl_uint)h.work;
	check(clSetKernelArg(h.kernel, 0, sizeof(memory[0]), &memory[0]), "clSetKernelArg");
	check(clSetKernelArg(h.kernel, 1, sizeof(memory[1]), &memory[1]), "clSetKernelArg");
	check(clSetKernelArg(h.kernel, 2, sizeof(bodies), &bodies), "clSetKernelArg");
	check(clSetKernelArg(h.kernel, 3, sizeof(partners), &partners), "clSetKernelArg");
	done = host_run(&h, 1, &global, &local);
	check(clEnqueueReadBuffer(h.queue, memory[1], CL_TRUE, 0, sizeof(speed), speed, 0, NULL,
				  NULL),
	      "clEnqueueReadBuffer");
	for (int i = 0; i < BODIES; i++)
		for (int k = 0; k < 3; k++)
			energy += (double)speed[i].s[k] * (double)speed[i].s[k];
	if (!isfinite(energy)) {
		fprintf(stderr, "nbody: the speeds are not finite\n");
		return 1;
	}
	fprintf(stderr, "nbody: %lu jobs, energy %.6g\n", done, energy);
	return 0;
}
