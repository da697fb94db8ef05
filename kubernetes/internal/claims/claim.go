// SPDX-License-Identifier: MIT

// Package claims makes what an allocated claim asks for on this node, and takes it away: a vGPU in
// rtxgd and a CDI specification for the container runtime. Both have names that follow from the
// claim's UID, and a checkpoint says what is meant to be there, so that a process that dies at any
// step is followed by one that finishes its work.
//
// May not: decide who gets which share. The scheduler did, and rtxgd admits or refuses.
package claims

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"rtxg.io/kubernetes/api/v1alpha1"
	"rtxg.io/kubernetes/internal/gpus"
)

// Wanted is what a claim wants on this node, as the checkpoint keeps it.
type Wanted struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// Devices of this driver, in the claim's order.
	Devices []Device `json:"devices"`
	// Settings of the claim's vGPU; nil where all devices are for administrators only.
	Settings *v1alpha1.Settings `json:"settings,omitempty"`
}

// Device is one allocated device of a claim.
type Device struct {
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	ShareID string `json:"shareID,omitempty"`
	GPU     string `json:"gpu"` // rtxgd's name
	UUID    string `json:"uuid,omitempty"`
	Lever   string `json:"lever"`
	Admin   bool   `json:"admin,omitempty"`
}

// VGPU is the name of the claim's vGPU.
func VGPU(uid types.UID) string { return gpus.VGPUPrefix + string(uid) }

// GPU is the device that the claim's vGPU is on; nil without one.
func (w *Wanted) GPU() *Device {
	for i := range w.Devices {
		if !w.Devices[i].Admin {
			return &w.Devices[i]
		}
	}
	return nil
}

func validUID(uid types.UID) error {
	if len(uid) == 0 || len(uid) > 59 {
		return fmt.Errorf("claim UID %q has %d bytes; 1 to 59 are accepted", uid, len(uid))
	}
	for _, c := range uid {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' {
			return fmt.Errorf("claim UID %q has the character %q; letters, digits and - are accepted", uid, c)
		}
	}
	return nil
}

// Read finds out what an allocated claim wants of the GPUs of this node.
func Read(claim *resourceapi.ResourceClaim, node string, found []gpus.GPU) (*Wanted, error) {
	if err := validUID(claim.UID); err != nil {
		return nil, err
	}
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s/%s is not allocated", claim.Namespace, claim.Name)
	}
	wanted := &Wanted{UID: claim.UID, Namespace: claim.Namespace, Name: claim.Name}
	devices := claim.Status.Allocation.Devices
	for i := range devices.Results {
		result := &devices.Results[i]
		if result.Driver != gpus.Driver {
			continue
		}
		if result.Pool != node {
			return nil, fmt.Errorf("device %s is in pool %s, and this is node %s", result.Device, result.Pool, node)
		}
		gpu := byDevice(found, result.Device)
		if gpu == nil {
			return nil, fmt.Errorf("rtxgd governs no GPU %s on node %s any more; \"rtxg doctor\" on the node says why", result.Device,
				node)
		}
		device := Device{Request: result.Request, Pool: result.Pool, Device: result.Device, GPU: gpu.Name, UUID: gpu.UUID,
			Lever: gpu.Lever, Admin: result.AdminAccess != nil && *result.AdminAccess}
		if result.ShareID != nil {
			device.ShareID = string(*result.ShareID)
		}
		wanted.Devices = append(wanted.Devices, device)
		if device.Admin {
			continue
		}
		if wanted.Settings != nil {
			return nil, fmt.Errorf("the claim has several GPUs, and a container is in one vGPU; ask for one GPU in each claim, and use " +
				"one claim in each container")
		}
		settings, err := settingsOf(devices.Config, result)
		if err != nil {
			return nil, err
		}
		wanted.Settings = settings
	}
	if len(wanted.Devices) == 0 {
		return nil, fmt.Errorf("the claim has no device of driver %s", gpus.Driver)
	}
	return wanted, nil
}

func byDevice(found []gpus.GPU, name string) *gpus.GPU {
	for i := range found {
		if found[i].Device == name {
			return &found[i]
		}
	}
	return nil
}

// settingsOf applies the last configuration that is for the request: those of the claim come after
// those of the class.
func settingsOf(configs []resourceapi.DeviceAllocationConfiguration, result *resourceapi.DeviceRequestAllocationResult) (
	*v1alpha1.Settings, error) {
	var chosen *v1alpha1.VGPUConfig
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass,
		resourceapi.AllocationConfigSourceClaim} {
		for i := range configs {
			c := &configs[i]
			if c.Source != source || c.Opaque == nil || c.Opaque.Driver != gpus.Driver || !applies(c.Requests, result.Request) {
				continue
			}
			config, err := v1alpha1.Decode(c.Opaque.Parameters.Raw)
			if err != nil {
				return nil, fmt.Errorf("configuration of the %s: %w", map[bool]string{true: "device class", false: "claim"}[source ==
					resourceapi.AllocationConfigSourceClass], err)
			}
			chosen = config
		}
	}
	quantity, ok := result.ConsumedCapacity[gpus.Share]
	if !ok {
		return nil, fmt.Errorf("the scheduler gave the claim no capacity %q of device %s: the cluster needs the feature "+
			"DRAConsumableCapacity (on from Kubernetes 1.36)", gpus.Share, result.Device)
	}
	settings, err := v1alpha1.Resolve(chosen, quantity.Value()*gpus.PPMPerShare)
	if memory, ok := result.ConsumedCapacity[gpus.Memory]; ok && err == nil {
		settings.Memory = memory.Value()
	}
	return settings, err
}

// applies compares with the request, and with the request that a subrequest "request/sub" belongs to.
func applies(requests []string, request string) bool {
	for _, name := range requests {
		if name == request || (len(request) > len(name) && request[:len(name)+1] == name+"/") {
			return true
		}
	}
	return len(requests) == 0
}
