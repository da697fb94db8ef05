/* SPDX-License-Identifier: MIT */
/*
 * flips.h - a client of QEMU's virtio-gpu that shows two dumb buffers in turn, as every compositor
 * does (DRM, KMS).
 */
#ifndef RTXG_VM_FLIPS_H
#define RTXG_VM_FLIPS_H

#include "rtxg_vm.h"

/*
 * The part of drm/drm.h and drm/drm_mode.h that is used here; libc does not bring them.
 */
struct resources {
	uint64_t fbs, crtcs, connectors, encoders;
	uint32_t count_fbs, count_crtcs, count_connectors, count_encoders;
	uint32_t min_width, max_width, min_height, max_height;
};
struct mode {
	uint32_t clock;
	uint16_t hdisplay, horizontal[4], vdisplay, vertical[4];
	uint32_t refresh, flags, type;
	char name[32];
};
struct connector {
	uint64_t encoders, modes, props, values;
	uint32_t count_modes, count_props, count_encoders;
	uint32_t encoder, id, type, type_id, connection, mm_width, mm_height, subpixel, pad;
};
struct crtc {
	uint64_t connectors;
	uint32_t count_connectors, id, fb, x, y, gamma_size, mode_valid;
	struct mode mode;
};
struct dumb {
	uint32_t height, width, bpp, flags, handle, pitch;
	uint64_t size;
};
struct framebuffer {
	uint32_t id, width, height, pitch, bpp, depth, handle;
};
struct flip {
	uint32_t crtc, fb, flags, reserved;
	uint64_t data;
};
#define IOCTL_RESOURCES _IOWR('d', 0xA0, struct resources)
#define IOCTL_SET_CRTC	_IOWR('d', 0xA2, struct crtc)
#define IOCTL_CONNECTOR _IOWR('d', 0xA7, struct connector)
#define IOCTL_ADD_FB	_IOWR('d', 0xAE, struct framebuffer)
#define IOCTL_FLIP	_IOWR('d', 0xB0, struct flip)
#define IOCTL_DUMB	_IOWR('d', 0xB2, struct dumb)
#define FLIP_EVENT	1

/* The driver, unless it is there. Without a console on it, which would be another client. */
static inline bool load_virtio_gpu(void)
{
	return !access("/dev/dri/card0", F_OK) ||
	       !shell("while read -r m; do o=; [ $m != drm_kms_helper.ko ] || "
		      "o=fbdev_emulation=0; insmod /modules/$m $o || exit 1; done "
		      "</modules/order.gpu");
}

/* A buffer of the screen's size; the framebuffer's number, or 0. */
static inline uint32_t add_buffer(int card, const struct mode *mode)
{
	struct dumb dumb = { .height = mode->vdisplay, .width = mode->hdisplay, .bpp = 32 };
	struct framebuffer fb = {
		.height = mode->vdisplay, .width = mode->hdisplay, .bpp = 32, .depth = 24
	};

	if (call(card, IOCTL_DUMB, &dumb))
		return 0;
	fb.handle = dumb.handle;
	fb.pitch = dumb.pitch;
	return call(card, IOCTL_ADD_FB, &fb) ? 0 : fb.id;
}

/* Shows two buffers in turn for ever. Writes a byte for each that is shown. */
static inline void show(int told)
{
	int card = open("/dev/dri/card0", O_RDWR | O_CLOEXEC);
	uint32_t crtcs[8], connectors[8], fbs[2];
	struct resources all = { .crtcs = (uintptr_t)crtcs,
				 .connectors = (uintptr_t)connectors,
				 .count_crtcs = 8,
				 .count_connectors = 8 };
	struct mode modes[64];
	struct connector screen = { .modes = (uintptr_t)modes, .count_modes = 64 }, look = {};
	struct crtc crtc = { .connectors = (uintptr_t)connectors,
			     .count_connectors = 1,
			     .mode_valid = 1 };
	char event[256];

	if (card < 0 || call(card, IOCTL_RESOURCES, &all) || !all.count_connectors)
		_exit(1);
	screen.id = look.id = connectors[0];
	/* without room for modes, the driver looks which there are */
	if (call(card, IOCTL_CONNECTOR, &look) || call(card, IOCTL_CONNECTOR, &screen) ||
	    !screen.count_modes)
		_exit(2);
	for (int i = 0; i < 2; i++)
		fbs[i] = add_buffer(card, &modes[0]);
	crtc.id = crtcs[0];
	crtc.fb = fbs[0];
	crtc.mode = modes[0];
	if (!fbs[0] || !fbs[1] || call(card, IOCTL_SET_CRTC, &crtc))
		_exit(3);
	for (unsigned int i = 1;; i++) {
		struct flip flip = { .crtc = crtcs[0], .fb = fbs[i % 2], .flags = FLIP_EVENT };

		if (call(card, IOCTL_FLIP, &flip) || read(card, event, sizeof(event)) <= 0 ||
		    write(told, "f", 1) != 1)
			_exit(4);
	}
}

struct client {
	pid_t pid;
	int shown;
};

static inline struct client begin_client(void)
{
	struct client client;
	int pipes[2];

	check(!pipe(pipes), "pipe");
	fflush(NULL);
	client.pid = fork();
	if (!client.pid) {
		close(pipes[0]);
		show(pipes[1]);
	}
	close(pipes[1]);
	client.shown = pipes[0];
	return client;
}

/* It has shown one more buffer. One that has ended shows none any more. */
static inline void await_flip(struct client *client)
{
	char byte;
	int status = 0;

	if (client->shown < 0 || read(client->shown, &byte, 1) == 1)
		return;
	waitpid(client->pid, &status, 0);
	check(false, "the client ended with %x", status);
	close(client->shown);
	client->shown = -1;
}

static inline void end_client(const struct client *client)
{
	if (client->shown < 0)
		return;
	kill(client->pid, SIGKILL);
	waitpid(client->pid, NULL, 0);
	close(client->shown);
}

#endif
