// SPDX-License-Identifier: MIT
/*
 * api_egl - a load of the GPU benchmarks that speaks OpenGL over EGL without a display, and knows
 * nothing of rtxg. EGL is opened at run time, so that only the headers are needed to build it.
 *
 *   api_egl SECONDS OUT [VENDOR]
 *
 * Dispatches of a compute shader of about 1 ms back to back on the first EGL device whose OpenGL
 * vendor begins with VENDOR ("NVIDIA"). Every 5 ms one line "CLOCK_MONOTONIC ns, dispatches
 * completed" goes to OUT.
 */
#define EGL_NO_X11
#include <EGL/egl.h>
#include <EGL/eglext.h>
#define GL_GLEXT_PROTOTYPES
#include <GL/gl.h>
#include <GL/glext.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AHEAD	 4    /* dispatches that are submitted and not completed */
#define GROUPS	 1024 /* of 256: enough for every thread slot of a large GPU */
#define TARGET_S 0.001

static void *lib;
static __typeof__(&eglGetProcAddress) by_name;

static void *function(const char *name)
{
	void *f = dlsym(lib, name);

	if (!f && by_name)
		f = (void *)by_name(name);
	if (!f) {
		fprintf(stderr, "api_egl: there is no %s\n", name);
		exit(1);
	}
	return f;
}

/* egl(Name)(arguments), gl(Name)(arguments): the driver's function of that name */
#define egl(name) ((__typeof__(&egl##name))function("egl" #name))
#define gl(name)  ((__typeof__(&gl##name))function("gl" #name))

static void fail(const char *what, unsigned int code)
{
	fprintf(stderr, "api_egl: %s: 0x%x\n", what, code);
	exit(1);
}

static unsigned long long now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (unsigned long long)ts.tv_sec * 1000000000ull + (unsigned long long)ts.tv_nsec;
}

static const char source[] = "#version 430\n"
			     "layout(local_size_x = 256) in;\n"
			     "layout(std430, binding = 0) buffer Result { float result[]; };\n"
			     "uniform uint turns;\n"
			     "void main() {\n"
			     "  float x = float(gl_GlobalInvocationID.x);\n"
			     "  for (uint i = 0u; i < turns; i++) x = x * 1.000001 + 0.5;\n"
			     "  if (x == 12345.678) result[0] = x;\n"
			     "}\n";

/* Makes a context on that device current; false: it is another vendor's, or has no OpenGL 4.3. */
static bool open_device(EGLDeviceEXT device, const char *vendor)
{
	static const EGLint wanted[] = { EGL_CONTEXT_MAJOR_VERSION, 4, EGL_CONTEXT_MINOR_VERSION, 3,
					 EGL_NONE };
	PFNEGLGETPLATFORMDISPLAYEXTPROC platform_display =
		(PFNEGLGETPLATFORMDISPLAYEXTPROC)by_name("eglGetPlatformDisplayEXT");
	EGLDisplay display;
	EGLContext context;
	const char *name;

	display = platform_display(EGL_PLATFORM_DEVICE_EXT, device, NULL);
	if (!display || !egl(Initialize)(display, NULL, NULL) || !egl(BindAPI)(EGL_OPENGL_API))
		return false;
	context = egl(CreateContext)(display, EGL_NO_CONFIG_KHR, EGL_NO_CONTEXT, wanted);
	if (!context || !egl(MakeCurrent)(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context))
		return false;
	name = (const char *)gl(GetString)(GL_VENDOR);
	fprintf(stderr, "api_egl: %s, %s\n", name, (const char *)gl(GetString)(GL_VERSION));
	return name && !strncmp(name, vendor, strlen(vendor));
}

static void open_vendor(const char *vendor)
{
	PFNEGLQUERYDEVICESEXTPROC query_devices =
		(PFNEGLQUERYDEVICESEXTPROC)by_name("eglQueryDevicesEXT");
	EGLDeviceEXT devices[16];
	EGLint count = 0;

	if (!query_devices || !query_devices(16, devices, &count))
		fail("eglQueryDevicesEXT", (unsigned int)egl(GetError)());
	for (EGLint i = 0; i < count; i++)
		if (open_device(devices[i], vendor))
			return;
	fprintf(stderr, "api_egl: none of %d devices has the vendor '%s...'\n", count, vendor);
	exit(1);
}

static GLint make_program(void)
{
	const char *text = source;
	GLuint shader = gl(CreateShader)(GL_COMPUTE_SHADER), program = gl(CreateProgram)(), buffer;
	char said[1000] = "";
	GLint fine = 0;

	gl(ShaderSource)(shader, 1, &text, NULL);
	gl(CompileShader)(shader);
	gl(GetShaderInfoLog)(shader, sizeof(said), NULL, said);
	gl(AttachShader)(program, shader);
	gl(LinkProgram)(program);
	gl(GetProgramiv)(program, GL_LINK_STATUS, &fine);
	if (!fine) {
		fprintf(stderr, "api_egl: %s\n", said);
		exit(1);
	}
	gl(UseProgram)(program);
	gl(GenBuffers)(1, &buffer);
	gl(BindBufferBase)(GL_SHADER_STORAGE_BUFFER, 0, buffer);
	gl(BufferData)(GL_SHADER_STORAGE_BUFFER, 4096, NULL, GL_STATIC_DRAW);
	return gl(GetUniformLocation)(program, "turns");
}

static GLsync submit(void)
{
	GLsync done;

	gl(DispatchCompute)(GROUPS, 1, 1);
	done = gl(FenceSync)(GL_SYNC_GPU_COMMANDS_COMPLETE, 0);
	gl(Flush)();
	return done;
}

static bool completed(GLsync fence, unsigned long long patience_ns)
{
	GLenum said = gl(ClientWaitSync)(fence, 0, patience_ns);

	if (said == GL_WAIT_FAILED)
		fail("glClientWaitSync", gl(GetError)());
	if (said == GL_TIMEOUT_EXPIRED)
		return false;
	gl(DeleteSync)(fence);
	return true;
}

/* As many turns as make a dispatch of about a millisecond, now that nothing else runs. */
static void calibrate(GLint where)
{
	GLuint turns = 1000;

	for (int i = 0; i < 12; i++) {
		unsigned long long begin;
		double took;

		gl(Uniform1ui)(where, turns);
		begin = now_ns();
		completed(submit(), 10000000000ull);
		took = (double)(now_ns() - begin) / 1e9;
		if (took < TARGET_S * 0.8)
			turns = (GLuint)(turns * (took < TARGET_S / 8 ? 4 : TARGET_S / took));
	}
	gl(Uniform1ui)(where, turns);
	fprintf(stderr, "api_egl: %u turns\n", turns);
}

int main(int argc, char **argv)
{
	unsigned long long end, next, started = 0, done = 0;
	GLsync fence[AHEAD];
	FILE *out;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: api_egl SECONDS OUT [VENDOR]\n");
		return 2;
	}
	lib = dlopen("libEGL.so.1", RTLD_NOW);
	if (!lib) {
		fprintf(stderr, "api_egl: %s\n", dlerror());
		return 77;
	}
	by_name = (__typeof__(by_name))function("eglGetProcAddress");
	out = fopen(argv[2], "w");
	if (!out) {
		perror(argv[2]);
		return 1;
	}
	setvbuf(out, NULL, _IOLBF, 0);
	open_vendor(argc > 3 ? argv[3] : "NVIDIA");
	calibrate(make_program());
	end = now_ns() + (unsigned long long)(atof(argv[1]) * 1e9);
	next = now_ns();
	while (now_ns() < end) {
		unsigned long long t;

		for (; started < done + AHEAD; started++)
			fence[started % AHEAD] = submit();
		while (done < started && completed(fence[done % AHEAD], 0))
			done++;
		t = now_ns();
		if (t >= next) {
			fprintf(out, "%llu %llu\n", t, done);
			next = t + 5000000;
		}
		usleep(100);
	}
	gl(Finish)();
	fclose(out);
	return 0;
}
