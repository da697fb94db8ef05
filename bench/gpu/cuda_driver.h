/* SPDX-License-Identifier: MIT */
/*
 * cuda_driver.h - CUDA's driver library for the programs of this folder that load it when they run:
 * its functions, a context with a kernel, and errors in words.
 */
#ifndef RTXG_BENCH_CUDA_DRIVER_H
#define RTXG_BENCH_CUDA_DRIVER_H

#include <stdint.h>

#define CUDA_FUNCTIONS(F)                                  \
	F(INIT, "cuInit")                                  \
	F(DEVICE, "cuDeviceGet")                           \
	F(CREATE, "cuCtxCreate_v2")                        \
	F(SET_CURRENT, "cuCtxSetCurrent")                  \
	F(LOAD, "cuModuleLoadData")                        \
	F(FUNCTION, "cuModuleGetFunction")                 \
	F(STREAM, "cuStreamCreate")                        \
	F(STREAM_SYNC, "cuStreamSynchronize")              \
	F(LAUNCH, "cuLaunchKernel")                        \
	F(HOST_FUNC, "cuLaunchHostFunc")                   \
	F(EVENT, "cuEventCreate")                          \
	F(RECORD, "cuEventRecord")                         \
	F(EVENT_SYNC, "cuEventSynchronize")                \
	F(HOST_ALLOC, "cuMemHostAlloc")                    \
	F(HOST_POINTER, "cuMemHostGetDevicePointer_v2")    \
	F(HOST_REGISTER, "cuMemHostRegister_v2")           \
	F(HOST_UNREGISTER, "cuMemHostUnregister")          \
	F(WRITE, "cuStreamWriteValue32_v2")                \
	F(BEGIN, "cuStreamBeginCapture_v2")                \
	F(END, "cuStreamEndCapture")                       \
	F(NEW_GRAPH, "cuGraphCreate")                      \
	F(ADD_CHILD, "cuGraphAddChildGraphNode")           \
	F(ADD_WRITE, "cuGraphAddBatchMemOpNode")           \
	F(SET_WRITE, "cuGraphExecBatchMemOpNodeSetParams") \
	F(INSTANTIATE, "cuGraphInstantiateWithFlags")      \
	F(GRAPH_LAUNCH, "cuGraphLaunch")                   \
	F(EXEC_DESTROY, "cuGraphExecDestroy")              \
	F(GRAPH_DESTROY, "cuGraphDestroy")                 \
	F(ERROR_NAME, "cuGetErrorName")
#define CUDA_NUMBER(number, name) number,
enum { CUDA_FUNCTIONS(CUDA_NUMBER) CUDA_FUNCTIONS_COUNT };

/* Called without a prototype. */
typedef int (*cuda_fn)();
extern cuda_fn cu[CUDA_FUNCTIONS_COUNT];

#define CUDA_HOST_MAPPED 3u /* CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP */

/* Loads the library; without it, or without one of the functions, the program ends with 77. */
void cuda_find(const char *program);

/*
 * Ends the program if there is an error: a line of JSON names what was called, the number, and its
 * words, CUDA's (a positive one) or librtxg's.
 */
void must(int error, const char *what);

/* A context with a stream, a kernel, and a page of the host's memory that the GPU sees. */
struct cuda_gpu {
	void *context, *stream, *kernel;
	volatile uint32_t *words;
	unsigned long long words_at; /* for the GPU */
};
/* flags: of cuCtxCreate. The context is current afterwards, and the words are 0. */
void cuda_open(struct cuda_gpu *gpu, int device, unsigned int flags, const char *ptx,
	       const char *kernel);

/* CPU time of this thread, ns. */
uint64_t processor_ns(void);

#endif
