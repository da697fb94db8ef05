// SPDX-License-Identifier: MIT
/*
 * fake_stream.c - the three functions of CUDA's driver library that rtx_timeline_signal() calls, for
 * test_nvrm.c. A write is carried out at once, as on a stream without work. Never installed.
 */
#include <stddef.h>
#include <stdint.h>

int fake_stream_registered, fake_stream_refuses;

int cuMemHostRegister_v2(void *page, size_t bytes, unsigned int flags);
int cuMemHostGetDevicePointer_v2(unsigned long long *at, void *here, unsigned int flags);
int cuStreamWriteValue32_v2(void *stream, unsigned long long at, uint32_t value,
			    unsigned int flags);

int cuMemHostRegister_v2(void *page, size_t bytes, unsigned int flags)
{
	if ((uintptr_t)page & 4095 || bytes != 4096 || flags != 3)
		return 1;
	if (fake_stream_refuses)
		return 201; /* CUDA_ERROR_INVALID_CONTEXT */
	return fake_stream_registered++ ? 712 : 0;
}

int cuMemHostGetDevicePointer_v2(unsigned long long *at, void *here, unsigned int flags)
{
	*at = (uintptr_t)here;
	return fake_stream_registered ? 0 : 1;
}

int cuStreamWriteValue32_v2(void *stream, unsigned long long at, uint32_t value, unsigned int flags)
{
	if (fake_stream_refuses)
		return 400; /* CUDA_ERROR_INVALID_HANDLE */
	__atomic_store_n((volatile uint32_t *)(uintptr_t)at, value, __ATOMIC_RELEASE);
	return 0;
}
