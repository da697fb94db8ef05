// SPDX-License-Identifier: MIT

package claims

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"rtxg.io/kubernetes/internal/gpus"
)

const node = "node-1"

var found = []gpus.GPU{{Device: "nvidia0", Name: "nvidia0", Lever: "nvidia", UUID: "GPU-1"}, {Device: "nvidia1", Name: "nvidia1"}}

func result(device, share string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: gpus.Driver, Pool: node, Device: device, ShareID: ptr.To(types.UID("s")),
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{gpus.Share: resource.MustParse(share)}}
}

func config(source resourceapi.AllocationConfigSource, driver, fields string, requests ...string) resourceapi.DeviceAllocationConfiguration {
	raw := []byte(`{"apiVersion": "gpu.rtxg.io/v1alpha1", "kind": "VGPUConfig"` + fields + `}`)
	return resourceapi.DeviceAllocationConfiguration{Source: source, Requests: requests, DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: raw}}}}
}

func allocated(uid types.UID, results []resourceapi.DeviceRequestAllocationResult, configs ...resourceapi.DeviceAllocationConfiguration) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: uid},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: results, Config: configs}}}}
}

type results = []resourceapi.DeviceRequestAllocationResult

const (
	ofClass = resourceapi.AllocationConfigSourceClass
	ofClaim = resourceapi.AllocationConfigSourceClaim
)

func TestTheClaimsConfigurationComesBeforeTheClasss(t *testing.T) {
	for _, c := range []struct {
		configs  []resourceapi.DeviceAllocationConfiguration
		priority int
	}{
		{nil, 1},
		{[]resourceapi.DeviceAllocationConfiguration{config(ofClass, gpus.Driver, `, "priority": 5`)}, 5},
		{[]resourceapi.DeviceAllocationConfiguration{config(ofClaim, gpus.Driver, `, "priority": 7`), config(ofClass, gpus.Driver, `, "priority": 5`)}, 7},
		{[]resourceapi.DeviceAllocationConfiguration{config(ofClaim, gpus.Driver, `, "priority": 7`), config(ofClaim, gpus.Driver, `, "priority": 8`)}, 8},
		{[]resourceapi.DeviceAllocationConfiguration{config(ofClaim, gpus.Driver, `, "priority": 7`, "other")}, 1},
		{[]resourceapi.DeviceAllocationConfiguration{config(ofClaim, gpus.Driver, `, "priority": 7`, "other", "gpu")}, 7},
		{[]resourceapi.DeviceAllocationConfiguration{config(ofClaim, "gpu.example.com", `, "whatever": 7`)}, 1},
	} {
		w, err := Read(allocated("u", results{result("nvidia0", "60")}, c.configs...), node, found)
		if err != nil || w.Settings.Priority != c.priority || w.Settings.MinPPM != 600000 {
			t.Errorf("%+v: %+v, %v", c, w, err)
		}
	}
	if !applies([]string{"gpu"}, "gpu/small") || applies([]string{"gpu/small"}, "gpu") || applies([]string{"gp"}, "gpu/small") {
		t.Error("subrequests belong to their request")
	}
}

func TestWhatCannotBePreparedIsRefusedWithTheReason(t *testing.T) {
	admin := result("nvidia0", "0")
	admin.AdminAccess = ptr.To(true)
	elsewhere := result("nvidia0", "1")
	elsewhere.Pool = "node-2"
	other := result("nvidia0", "1")
	other.Driver = "gpu.example.com"
	old := result("nvidia0", "1")
	old.ConsumedCapacity = nil
	for says, claim := range map[string]*resourceapi.ResourceClaim{
		"several GPUs":          allocated("u", results{result("nvidia0", "10"), result("nvidia1", "10")}),
		"no GPU nvidia7":        allocated("u", results{result("nvidia7", "10")}),
		"pool node-2":           allocated("u", results{elsewhere}),
		"no device of driver":   allocated("u", results{other}),
		"DRAConsumableCapacity": allocated("u", results{old}),
		"is not allocated":      {ObjectMeta: metav1.ObjectMeta{UID: "u"}},
		"UID":                   allocated("../../etc", results{result("nvidia0", "10")}),
		"limits":                allocated("u", results{result("nvidia0", "10")}, config(ofClaim, gpus.Driver, `, "limits": 7`)),
		"of the device class":   allocated("u", results{result("nvidia0", "10")}, config(ofClass, gpus.Driver, `, "limits": 7`)),
		"share: 60":             allocated("u", results{result("nvidia0", "50")}, config(ofClaim, gpus.Driver, `, "reservation": "60%"`)),
	} {
		if _, err := Read(claim, node, found); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; %q is to be said", err, says)
		}
	}
	w, err := Read(allocated("u", results{admin, admin, other}), node, found)
	if err != nil || len(w.Devices) != 2 || w.Settings != nil || w.GPU() != nil {
		t.Errorf("%+v, %v", w, err)
	}
	if w, err = Read(allocated("u", results{admin, result("nvidia1", "10")}), node, found); err != nil || w.GPU().GPU != "nvidia1" {
		t.Errorf("%+v, %v", w, err)
	}
}
