// SPDX-License-Identifier: MIT

package rtxgd

import (
	"context"
	"errors"
	"syscall"
)

// GPU is an entry of gpu-list.
type GPU struct {
	Name        string   `json:"gpu"`
	Levers      []string `json:"levers"`
	PCI         string   `json:"pci"`
	ReservedPPM int64    `json:"reserved_ppm"`
}

// VGPU is an entry of vgpu-list.
type VGPU struct {
	Name      string   `json:"vgpu"`
	GPU       *string  `json:"gpu"` // nil: on all GPUs
	MinPPM    int64    `json:"min_ppm"`
	MaxPPM    int64    `json:"max_ppm"`
	Priority  int      `json:"priority"`
	LatencyNS int64    `json:"latency_ns"`
	Cgroups   []string `json:"cgroups"`
	// Most GPU memory of each cgroup, 0: no limit; and what became of it.
	MemoryBytes int64        `json:"memory_bytes"`
	MemoryLimit *MemoryLimit `json:"memory_limit"`
}

// States of a limit on memory.
const (
	MemoryHeld    = "held"
	MemoryTrying  = "trying"  // the driver is being asked
	MemoryWaiting = "waiting" // for a cgroup that is not there yet
	MemoryRefused = "refused"
)

// MemoryLimit says what became of a limit on memory.
type MemoryLimit struct {
	State string `json:"state"`
	Why   string `json:"why"`
}

// Process is an entry of task-list.
type Process struct {
	PID     int     `json:"pid"`
	Comm    string  `json:"comm"`
	VGPU    *string `json:"vgpu"`
	GPU     *string `json:"gpu"`
	Managed *bool   `json:"managed"` // nil: a task of the gate, which is managed
	Remedy  string  `json:"remedy"`
	Error   string  `json:"error"`   // of a process that asked for a task and got none
	Message string  `json:"message"` // the same
}

// Governed says whether a GPU's lever works, from metrics.
type Governed struct {
	GPU      string `json:"gpu"`
	Lever    string `json:"lever"`
	Governed bool   `json:"governed"`
}

// VGPUOnGPU is what stats says of a vGPU on one GPU.
type VGPUOnGPU struct {
	VGPU       string           `json:"vgpu"`
	Broken     []string         `json:"broken"`
	BrokenNS   map[string]int64 `json:"broken_ns"`
	BrokenBy   *int             `json:"broken_by"` // a pid
	Ungoverned int              `json:"ungoverned"`
}

// GPUStats is what stats says of one GPU.
type GPUStats struct {
	GPU        string      `json:"gpu"`
	Ungoverned int         `json:"ungoverned"`
	VGPUs      []VGPUOnGPU `json:"vgpus"`
}

// GPUs lists the GPUs that the daemon knows.
func (c *Client) GPUs(ctx context.Context) ([]GPU, error) {
	var reply struct {
		GPUs []GPU `json:"gpus"`
	}
	err := c.Ask(ctx, "gpu-list", nil, &reply)
	return reply.GPUs, err
}

// Levers says which GPUs are governed.
func (c *Client) Levers(ctx context.Context) ([]Governed, error) {
	var reply struct {
		GPUs []Governed `json:"gpus"`
	}
	err := c.Ask(ctx, "metrics", nil, &reply)
	return reply.GPUs, err
}

// VGPUs lists the vGPUs.
func (c *Client) VGPUs(ctx context.Context) ([]VGPU, error) {
	var reply struct {
		VGPUs []VGPU `json:"vgpus"`
	}
	err := c.Ask(ctx, "vgpu-list", nil, &reply)
	return reply.VGPUs, err
}

// VGPU is one vGPU by name, or nil.
func (c *Client) VGPU(ctx context.Context, name string) (*VGPU, error) {
	var reply struct {
		VGPUs []VGPU `json:"vgpus"`
	}
	err := c.Ask(ctx, "vgpu-list", map[string]any{"vgpu": name}, &reply)
	if errors.Is(err, syscall.ENOENT) {
		return nil, nil
	}
	if err != nil || len(reply.VGPUs) != 1 {
		return nil, err
	}
	return &reply.VGPUs[0], nil
}

// Processes lists the programs that use a GPU, and those that asked for one and were refused.
func (c *Client) Processes(ctx context.Context) (using, refused []Process, err error) {
	var reply struct {
		Tasks   []Process `json:"tasks"`
		Refused []Process `json:"refused"`
	}
	err = c.Ask(ctx, "task-list", nil, &reply)
	return reply.Tasks, reply.Refused, err
}

// Stats says how well promises are kept.
func (c *Client) Stats(ctx context.Context) ([]GPUStats, error) {
	var reply struct {
		GPUs []GPUStats `json:"gpus"`
	}
	err := c.Ask(ctx, "stats", nil, &reply)
	return reply.GPUs, err
}

// CreateVGPU makes a vGPU; members are those of the protocol.
func (c *Client) CreateVGPU(ctx context.Context, members map[string]any) error {
	return c.Ask(ctx, "vgpu-create", members, nil)
}

// SetVGPU changes a vGPU.
func (c *Client) SetVGPU(ctx context.Context, members map[string]any) error {
	return c.Ask(ctx, "vgpu-set", members, nil)
}

// RemoveVGPU removes a vGPU; one that is not there is no error.
func (c *Client) RemoveVGPU(ctx context.Context, name string) error {
	err := c.Ask(ctx, "vgpu-remove", map[string]any{"vgpu": name}, nil)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}
