// SPDX-License-Identifier: MIT

package gpus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const node = "node-1"

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("no class %s", name)
}

// class as the chart has it (chart/templates/deviceclasses.yaml).
func class(name, expression string) *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}}}
}

var known = classes{
	class("gpu.rtxg.io", "device.driver == 'gpu.rtxg.io' && device.attributes['gpu.rtxg.io'].governed"),
	class("gpu-metrics.rtxg.io", "device.driver == 'gpu.rtxg.io'"),
}

// cluster is what the scheduler knows: slices, and what was allocated.
type cluster struct {
	t      *testing.T
	slices []*resourceapi.ResourceSlice
	state  structured.AllocatedState
	claims int
}

func newCluster(t *testing.T, found ...GPU) *cluster {
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "slice"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: Driver, NodeName: ptr.To(node), Devices: Devices(found),
		Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}}}
	return &cluster{t: t, slices: []*resourceapi.ResourceSlice{slice}, state: structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection()}}
}

// allocate asks the scheduler's own allocator for one claim; nil if it is not placed.
func (c *cluster) allocate(request resourceapi.ExactDeviceRequest) *resourceapi.DeviceRequestAllocationResult {
	c.t.Helper()
	c.claims++
	if request.AllocationMode == "" {
		request.AllocationMode, request.Count = resourceapi.DeviceAllocationModeExactCount, 1
	}
	if request.DeviceClassName == "" {
		request.DeviceClassName = "gpu.rtxg.io"
	}
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claim-", c.claims), Namespace: "default", UID: types.UID(fmt.Sprint("uid-", c.claims))},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &request}}}}}
	allocator, err := structured.NewAllocator(context.Background(), structured.Features{ConsumableCapacity: true, AdminAccess: true}, c.state,
		known, c.slices, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		c.t.Fatal(err)
	}
	results, err := allocator.Allocate(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}},
		[]*resourceapi.ResourceClaim{claim})
	if err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode) {
		c.t.Fatal(err)
	}
	if len(results) == 0 {
		return nil
	}
	result := &results[0].Devices.Results[0]
	if result.AdminAccess == nil || !*result.AdminAccess {
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		c.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
		c.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
	}
	return result
}

func share(percent string) resourceapi.ExactDeviceRequest {
	return asks(map[resourceapi.QualifiedName]string{Share: percent})
}

func asks(capacity map[resourceapi.QualifiedName]string) resourceapi.ExactDeviceRequest {
	requests := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, text := range capacity {
		requests[name] = resource.MustParse(text)
	}
	return resourceapi.ExactDeviceRequest{Capacity: &resourceapi.CapacityRequirements{Requests: requests}}
}

func gpu(name string) GPU {
	return GPU{Device: name, Name: name, Lever: "nvidia", Governed: true, Share: 100, Memory: 80 << 30}
}

func TestFourClaimsFillAGPUAndAFifthIsNotPlaced(t *testing.T) {
	c := newCluster(t, gpu("nvidia0"))
	for _, percent := range []string{"60", "20", "10", "10"} {
		result := c.allocate(share(percent))
		if result == nil || result.Device != "nvidia0" || result.ShareID == nil {
			t.Fatalf("%s: %+v", percent, result)
		}
		if got := result.ConsumedCapacity[Share]; got.String() != percent {
			t.Errorf("%s: %s were taken", percent, got.String())
		}
	}
	if result := c.allocate(share("1")); result != nil {
		t.Errorf("the fifth is placed: %+v", result)
	}
	if result := c.allocate(share("0")); result == nil {
		t.Error("work without a reservation is not placed")
	}
}

func TestClaimsGoToAnotherGPUWhereOneIsFull(t *testing.T) {
	c := newCluster(t, gpu("nvidia0"), gpu("nvidia1"))
	on := map[string]int{}
	for range 3 {
		if result := c.allocate(share("60")); result != nil {
			on[result.Device]++
		}
	}
	if on["nvidia0"] != 1 || on["nvidia1"] != 1 {
		t.Error(on)
	}
}

func TestAClaimThatAsksForNoShareGetsAWholeGPU(t *testing.T) {
	c := newCluster(t, gpu("nvidia0"))
	result := c.allocate(resourceapi.ExactDeviceRequest{})
	if result == nil {
		t.Fatal("it is not placed")
	}
	if got := result.ConsumedCapacity[Share]; got.String() != "100" {
		t.Errorf("%s were taken", got.String())
	}
	if got := result.ConsumedCapacity[Memory]; !got.IsZero() {
		t.Errorf("%s of memory were taken", got.String())
	}
	if c.allocate(share("1")) != nil {
		t.Error("another one is placed beside it")
	}
}

func TestSharesAreWholePercentsAndNeverMoreThanAGPU(t *testing.T) {
	c := newCluster(t, gpu("nvidia0"))
	if c.allocate(share("101")) != nil {
		t.Error("101 % are placed")
	}
	result := c.allocate(share("12500m"))
	if result == nil {
		t.Fatal("12.5 % are not placed")
	}
	if got := result.ConsumedCapacity[Share]; got.Value() != 13 {
		t.Errorf("12.5 %% took %s", got.String())
	}
}

func TestMemoryIsCountedBesideShares(t *testing.T) {
	c := newCluster(t, gpu("nvidia0"))
	half := map[resourceapi.QualifiedName]string{Share: "10", Memory: "40Gi"}
	if c.allocate(asks(half)) == nil || c.allocate(asks(half)) == nil {
		t.Fatal("two halves are not placed")
	}
	if c.allocate(asks(half)) != nil {
		t.Error("a third half is placed")
	}
}

func TestWhatTheNodeKeptIsNotGivenAway(t *testing.T) {
	less := gpu("nvidia0")
	less.Share = 85
	c := newCluster(t, less)
	if c.allocate(share("86")) != nil || c.allocate(share("85")) == nil {
		t.Error("85 % are there")
	}
	less.Share = 0
	if c := newCluster(t, less); c.allocate(share("1")) != nil || c.allocate(share("0")) == nil {
		t.Error("nothing is there, and that suffices for work without a reservation")
	}
}

func TestMetricsAreToBeHadOfAGPUThatIsFull(t *testing.T) {
	text, err := os.ReadFile("../../examples/admin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var template resourceapi.ResourceClaimTemplate
	if err := yaml.UnmarshalStrict(text, &template); err != nil {
		t.Fatal(err)
	}
	for _, percent := range []string{"0", "60", "100"} {
		c := newCluster(t, gpu("nvidia0"))
		c.allocate(share(percent))
		if result := c.allocate(*template.Spec.Spec.Devices.Requests[0].Exactly); result == nil || !*result.AdminAccess {
			t.Errorf("beside %s %%: %+v", percent, result)
		}
	}
}

func TestAGPUThatIsNotGovernedIsForMetricsOnly(t *testing.T) {
	bad := gpu("nvidia0")
	bad.Governed = false
	c := newCluster(t, bad)
	if c.allocate(share("10")) != nil {
		t.Error("a claim is placed on a GPU that no lever governs")
	}
	admin := resourceapi.ExactDeviceRequest{DeviceClassName: "gpu-metrics.rtxg.io", AdminAccess: ptr.To(true)}
	if result := c.allocate(admin); result == nil || result.AdminAccess == nil || !*result.AdminAccess {
		t.Errorf("%+v", result)
	}
}
