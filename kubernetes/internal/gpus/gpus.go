// SPDX-License-Identifier: MIT

// Package gpus turns what rtxgd knows of a node's GPUs into the devices that the node publishes in
// its ResourceSlice. Each GPU is a device that many claims may share: its capacity "share" is in
// percent of the GPU, and "memory" in bytes.
//
// May not: decide whether a claim fits. The scheduler does so by capacity, and rtxgd in the end.
package gpus

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"rtxg.io/kubernetes/api/v1alpha1"
	"rtxg.io/kubernetes/internal/rtxgd"
)

const (
	// Driver is the name of the DRA driver.
	Driver = v1alpha1.GroupName
	// Share and Memory are the capacities of a GPU.
	Share, Memory = resourceapi.QualifiedName("share"), resourceapi.QualifiedName("memory")
	// VGPUPrefix begins the names of vGPUs that belong to claims.
	VGPUPrefix = "k8s-"
	// PPMPerShare is one unit of the capacity "share" in parts per million.
	PPMPerShare = v1alpha1.PPM / 100

	deviceNameMax, textMax = 63, 64

	memoryStep = 1 << 20
)

// GPU is one GPU of the node.
type GPU struct {
	Device   string // name in the slice
	Name     string // rtxgd's name
	Lever    string
	PCI      string
	UUID     string
	Model    string
	Memory   int64 // bytes; 0: not known
	Governed bool
	Share    int64 // percent that claims may take: what the node's own vGPUs have not reserved
	Claims   int64 // that are prepared on it; Find does not know it
}

// Finder finds the GPUs of a node.
type Finder struct {
	Daemon *rtxgd.Client
	// Levers that are published: "nvidia", "gate".
	Levers []string
	// ProcDriver is where the NVIDIA driver says what its GPUs are, /proc/driver/nvidia.
	ProcDriver string
	// MemoryOf knows a GPU's memory in bytes, by UUID or PCI address; 0: not known. May be nil.
	MemoryOf func(uuid, pci string) int64
}

var notInLabel = regexp.MustCompile(`[^a-z0-9]+`)

// DeviceName is a GPU's name as a device may be called in a slice: a DNS label. Names that had to be
// changed end in a hash, so that two GPUs never get one name.
func DeviceName(gpu string) string {
	label := strings.Trim(notInLabel.ReplaceAllString(strings.ToLower(gpu), "-"), "-")
	if label == gpu && len(label) <= deviceNameMax {
		return label
	}
	sum := sha256.Sum256([]byte(gpu))
	if len(label) > deviceNameMax-13 {
		label = strings.Trim(label[:deviceNameMax-13], "-")
	}
	return "gpu-" + label + "-" + hex.EncodeToString(sum[:4])
}

// Find asks the daemon.
func (f *Finder) Find(ctx context.Context) ([]GPU, error) {
	listed, vgpus, err := f.atOneMoment(ctx)
	if err != nil {
		return nil, err
	}
	levers, err := f.Daemon.Levers(ctx)
	if err != nil {
		return nil, err
	}
	governed := map[string]bool{}
	for _, l := range levers {
		governed[l.GPU] = l.Governed
	}
	var found []GPU
	for _, g := range listed {
		if len(g.Levers) == 0 || !slices.Contains(f.Levers, g.Levers[0]) {
			continue
		}
		one := GPU{Device: DeviceName(g.Name), Name: g.Name, Lever: g.Levers[0], PCI: strings.ToLower(g.PCI),
			Governed: governed[g.Name]}
		f.describe(&one)
		// What the administrator reserved on the node itself is not there for claims.
		others := g.ReservedPPM
		for _, v := range vgpus {
			if strings.HasPrefix(v.Name, VGPUPrefix) && v.GPU != nil && *v.GPU == g.Name {
				others -= v.MinPPM
			}
		}
		one.Share = min(max(v1alpha1.PPM-others, 0)/PPMPerShare, 100)
		found = append(found, one)
	}
	return found, nil
}

// atOneMoment asks until no vGPU of a claim came or went between two answers: what claims reserve would
// be taken off a sum that does not have it, and the slice would show a share that was never there.
func (f *Finder) atOneMoment(ctx context.Context) ([]rtxgd.GPU, []rtxgd.VGPU, error) {
	before, err := f.Daemon.VGPUs(ctx)
	for err == nil {
		var listed []rtxgd.GPU
		var after []rtxgd.VGPU
		if listed, err = f.Daemon.GPUs(ctx); err != nil {
			break
		}
		if after, err = f.Daemon.VGPUs(ctx); err != nil {
			break
		}
		if slices.Equal(reservations(before), reservations(after)) {
			return listed, after, nil
		}
		before = after
	}
	return nil, nil, err
}

func reservations(vgpus []rtxgd.VGPU) []string {
	var all []string
	for _, v := range vgpus {
		all = append(all, fmt.Sprintf("%s %d", v.Name, v.MinPPM))
	}
	slices.Sort(all)
	return all
}

// describe reads UUID and model from the driver's file, of lines such as "GPU UUID:  GPU-...".
func (f *Finder) describe(g *GPU) {
	if g.PCI != "" && f.ProcDriver != "" {
		file, err := os.Open(filepath.Join(f.ProcDriver, "gpus", filepath.Base(g.PCI), "information"))
		if err == nil {
			defer file.Close()
			for lines := bufio.NewScanner(file); lines.Scan(); {
				name, value, _ := strings.Cut(lines.Text(), ":")
				switch strings.TrimSpace(name) {
				case "GPU UUID":
					g.UUID = strings.TrimSpace(value)
				case "Model":
					g.Model = strings.TrimSpace(value)
				}
			}
		}
	}
	if f.MemoryOf != nil {
		g.Memory = f.MemoryOf(g.UUID, g.PCI)
	}
}

// Devices are the GPUs as a slice has them. A GPU of which nothing is left is published with a share of
// 0, so that claims that ask for none still find it.
func Devices(found []GPU) []resourceapi.Device {
	var devices []resourceapi.Device
	for _, g := range found {
		attributes := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"name":     {StringValue: ptr.To(cut(g.Name))},
			"lever":    {StringValue: ptr.To(g.Lever)},
			"governed": {BoolValue: ptr.To(g.Governed)},
			// Only the NVIDIA lever can stop what runs, which a bound on latency needs.
			"latency": {BoolValue: ptr.To(g.Governed && g.Lever == "nvidia")},
			// A slice that changes makes the scheduler look again at pods that it refused. That of
			// Kubernetes 1.36 counts a claim twice while it writes it down, and so refuses pods for
			// which there is room; what it counted twice has been prepared a little later.
			"claims": {IntValue: ptr.To(g.Claims)},
		}
		for name, text := range map[resourceapi.QualifiedName]string{
			"uuid": g.UUID, "model": g.Model, "resource.kubernetes.io/pciBusID": g.PCI} {
			if text != "" {
				attributes[name] = resourceapi.DeviceAttribute{StringValue: ptr.To(cut(text))}
			}
		}
		capacity := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			Share: consumable(*resource.NewQuantity(g.Share, resource.DecimalSI), *resource.NewQuantity(g.Share, resource.DecimalSI),
				*resource.NewQuantity(0, resource.DecimalSI), *resource.NewQuantity(1, resource.DecimalSI)),
		}
		if memory := g.Memory &^ (memoryStep - 1); memory > 0 {
			capacity[Memory] = consumable(*resource.NewQuantity(memory, resource.BinarySI),
				*resource.NewQuantity(0, resource.BinarySI), *resource.NewQuantity(0, resource.BinarySI),
				*resource.NewQuantity(memoryStep, resource.BinarySI))
		}
		devices = append(devices, resourceapi.Device{Name: g.Device, Attributes: attributes, Capacity: capacity,
			AllowMultipleAllocations: ptr.To(true)})
	}
	return devices
}

// consumable is a capacity of which a claim takes what it asks for, in steps, and the default if it
// asks for nothing: of share all, as a GPU is a whole one elsewhere, and of memory nothing. The API
// server accepts no step that is larger than the value.
func consumable(value, ifNot, least, step resource.Quantity) resourceapi.DeviceCapacity {
	valid := &resourceapi.CapacityRequestPolicyRange{Min: &least, Max: &value}
	if step.Cmp(value) <= 0 {
		valid.Step = &step
	}
	return resourceapi.DeviceCapacity{Value: value, RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: &ifNot, ValidRange: valid}}
}

// Resources are the node's only pool, named after the node, with one slice.
func Resources(node string, found []GPU) resourceslice.DriverResources {
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		node: {Slices: []resourceslice.Slice{{Devices: Devices(found)}}},
	}}
}

func cut(text string) string {
	if len(text) > textMax {
		return strings.ToValidUTF8(text[:textMax], "")
	}
	return text
}

// Missing says why a node has nothing to publish.
func Missing(levers []string) string {
	return fmt.Sprintf("rtxgd governs no GPU by the lever%s %s: no device is published; \"rtxg doctor\" on the node says why",
		map[bool]string{true: "s"}[len(levers) > 1], strings.Join(levers, ", "))
}
