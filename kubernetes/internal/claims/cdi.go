// SPDX-License-Identifier: MIT

package claims

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

const (
	vendor, class = "rtxg.io", "claim"
	// MetricsFolder is where a container with administrator's access finds the node's metrics.
	MetricsFolder = "/run/rtxg-metrics"
)

// CDI writes and removes the specifications of claims.
type CDI struct {
	// Folder that the container runtime reads, /var/run/cdi.
	Folder string
	// Hook is rtxg-cdi-hook on the node; Socket is the daemon's there.
	Hook, Socket string
	// Metrics is the folder on the node with rtxg.prom in it.
	Metrics string
	// GPUKind names the CDI devices that give a container the GPU itself, "nvidia.com/gpu"; "": none.
	GPUKind string
}

func (c *CDI) file(uid types.UID) string {
	return filepath.Join(c.Folder, cdi.GenerateTransientSpecName(vendor, class, string(uid))+".json")
}

func deviceName(uid types.UID, admin bool) string {
	if admin {
		return string(uid) + "-admin"
	}
	return string(uid)
}

// IDs are the devices that the container runtime is told for a device of a claim.
func (c *CDI) IDs(uid types.UID, d *Device) []string {
	var ids []string
	if !d.Admin && d.Lever == "nvidia" && c.GPUKind != "" {
		name := d.UUID
		if name == "" { // without it by number, as nvidia-ctk names them
			name = d.GPU[len("nvidia"):]
		}
		ids = append(ids, c.GPUKind+"="+name)
	}
	return append(ids, parser.QualifiedName(vendor, class, deviceName(uid, d.Admin)))
}

// Write makes the claim's specification, or replaces it. It is there as a whole or not at all.
func (c *CDI) Write(w *Wanted) error {
	spec := &specs.Spec{Kind: vendor + "/" + class}
	admin := false
	for i := range w.Devices {
		d := &w.Devices[i]
		if d.Admin {
			admin = true
			continue
		}
		name := VGPU(w.UID)
		spec.Devices = append(spec.Devices, specs.Device{Name: deviceName(w.UID, false), ContainerEdits: specs.ContainerEdits{
			Env: []string{"RTXG_VGPU=" + name},
			// The runtime calls it on the node, before the container's first program: the container's
			// cgroup is bound, and what runs in it belongs to the vGPU.
			Hooks: []*specs.Hook{{HookName: cdi.CreateRuntimeHook, Path: c.Hook,
				Args: []string{filepath.Base(c.Hook), "--vgpu", name}, Env: []string{"RTXG_SOCKET=" + c.Socket}}},
		}})
	}
	if admin {
		spec.Devices = append(spec.Devices, specs.Device{Name: deviceName(w.UID, true), ContainerEdits: specs.ContainerEdits{
			Env: []string{"RTXG_METRICS=" + MetricsFolder + "/rtxg.prom"},
			Mounts: []*specs.Mount{{HostPath: c.Metrics, ContainerPath: MetricsFolder,
				Options: []string{"ro", "nosuid", "nodev", "noexec", "bind"}}},
		}})
	}
	version, err := cdi.MinimumRequiredVersion(spec)
	if err != nil {
		return fmt.Errorf("CDI specification: %w", err)
	}
	spec.Version = version
	cache, err := cdi.NewCache(cdi.WithSpecDirs(c.Folder), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("CDI folder %s: %w", c.Folder, err)
	}
	if err := cache.WriteSpec(spec, filepath.Base(c.file(w.UID))); err != nil {
		return fmt.Errorf("CDI file %s: %w", c.file(w.UID), err)
	}
	return nil
}

// There says whether the claim has a specification.
func (c *CDI) There(uid types.UID) bool {
	_, err := os.Stat(c.file(uid))
	return err == nil
}

// Remove takes the claim's specification away; one that is not there is no error.
func (c *CDI) Remove(uid types.UID) error {
	if err := os.Remove(c.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("CDI file: %w", err)
	}
	return nil
}
