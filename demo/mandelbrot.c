// SPDX-License-Identifier: MIT
/*
 * mandelbrot.c - draws the Mandelbrot set again and again: one kernel a picture. --work is the
 * number of iterations of a point. An ordinary OpenCL program; it knows nothing of rtxg.
 */
#include "host.h"

#define WIDTH  256
#define HEIGHT 64

static const char source[] = "__kernel void draw(__global uint *picture, uint iterations)\n"
			     "{\n"
			     "	size_t i = get_global_id(0), j = get_global_id(1), width = "
			     "get_global_size(0), height = get_global_size(1);\n"
			     "	float cx = -0.6f + 0.4f * (float)i / (float)width, cy = -0.2f + "
			     "0.4f * (float)j / (float)height;\n"
			     "	float x = 0.0f, y = 0.0f;\n"
			     "	uint inside = 0;\n"
			     "	for (uint k = 0; k < iterations; k++) {\n"
			     "		float t = x * x - y * y + cx;\n"
			     "		y = clamp(2.0f * x * y + cy, -4.0f, 4.0f);\n"
			     "		x = clamp(t, -4.0f, 4.0f);\n"
			     "		inside += x * x + y * y < 4.0f ? 1u : 0u;\n"
			     "	}\n"
			     "	picture[j * width + i] = inside;\n"
			     "}\n";

int main(int argc, char **argv)
{
	size_t global[2] = { WIDTH, HEIGHT }, local[2] = { 64, 1 };
	static cl_uint picture[WIDTH * HEIGHT];
	unsigned long done, inside = 0;
	struct host h;
	cl_mem memory;
	cl_uint iterations;
	cl_int err;

	host_start(&h, argc, argv, source, "draw");
	memory = clCreateBuffer(h.context, CL_MEM_WRITE_ONLY, sizeof(picture), NULL, &err);
	check(err, "clCreateBuffer");
	iterations = (cl_uint)h.work;
	check(clSetKernelArg(h.kernel, 0, sizeof(memory), &memory), "clSetKernelArg");
	check(clSetKernelArg(h.kernel, 1, sizeof(iterations), &iterations), "clSetKernelArg");
	done = host_run(&h, 2, global, local);
	check(clEnqueueReadBuffer(h.queue, memory, CL_TRUE, 0, sizeof(picture), picture, 0, NULL,
				  NULL),
	      "clEnqueueReadBuffer");
	for (int i = 0; i < WIDTH * HEIGHT; i++)
		inside += picture[i] == iterations;
	fprintf(stderr, "mandelbrot: %lu pictures, %lu points inside\n", done, inside);
	return 0;
}
