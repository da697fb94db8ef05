// SPDX-License-Identifier: MIT

package plugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"

	"rtxg.io/kubernetes/internal/claims"
	"rtxg.io/kubernetes/internal/gpus"
	"rtxg.io/kubernetes/internal/status"
	"rtxg.io/kubernetes/internal/testrig"
)

const node = "node-1"

// rig is a node: rtxgd with a fake GPU, the plugin, and a kubelet's connection to it.
type rig struct {
	t       *testing.T
	daemon  *testrig.Daemon
	client  *fake.Clientset
	options Options
	plugin  *Plugin
	kubelet drapb.DRAPluginClient
	stop    func()
}

func newRig(t *testing.T, objects ...runtime.Object) *rig {
	r := &rig{t: t, daemon: testrig.Start(t, testrig.Nvidia)}
	objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "node-uid"}})
	r.client = fake.NewClientset(objects...)
	folder := r.daemon.Folder
	if err := os.Mkdir(filepath.Join(folder, "registry"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.options = Options{Node: node, Client: r.client, Daemon: &r.daemon.Client, PluginFolder: filepath.Join(folder, "plugin"),
		RegistryFolder: filepath.Join(folder, "registry"), Every: time.Hour, Rtxg: testrig.Built(t, "cli/rtxg"),
		Finder: &gpus.Finder{Daemon: &r.daemon.Client, Levers: []string{"nvidia"}},
		State: &claims.State{Daemon: &r.daemon.Client, Folder: filepath.Join(folder, "plugin"), Log: logr.Discard(),
			CDI: &claims.CDI{Folder: filepath.Join(folder, "cdi"), Hook: "/usr/libexec/rtxg/rtxg-cdi-hook", Socket: r.daemon.Socket,
				Metrics: filepath.Join(folder, "metrics"), GPUKind: "nvidia.com/gpu"}}}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p, err := Start(ctx, r.options)
	if err != nil {
		r.t.Fatal(err)
	}
	connection, err := grpc.NewClient("unix://"+filepath.Join(r.options.PluginFolder, "dra.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.plugin, r.kubelet = p, drapb.NewDRAPluginClient(connection)
	r.stop = func() {
		connection.Close()
		cancel()
		p.Stop()
	}
}

// claim is allocated by the scheduler with a share.
func claim(name string, percent string, more func(*resourceapi.DeviceRequestAllocationResult), parameters ...string) *resourceapi.ResourceClaim {
	result := resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: gpus.Driver, Pool: node, Device: "nvidia0",
		ShareID: ptr.To(types.UID("share-" + name)), ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
			gpus.Share: resource.MustParse(percent)}}
	if more != nil {
		more(&result)
	}
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
			Results: []resourceapi.DeviceRequestAllocationResult{result}}}}}
	for _, text := range parameters {
		c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: gpus.Driver, Parameters: runtime.RawExtension{Raw: []byte(
					`{"apiVersion": "gpu.rtxg.io/v1alpha1", "kind": "VGPUConfig"` + text + `}`)}}}})
	}
	return c
}

func names(list ...string) []*drapb.Claim {
	var asked []*drapb.Claim
	for _, name := range list {
		asked = append(asked, &drapb.Claim{Namespace: "ns", Name: name, Uid: "uid-" + name})
	}
	return asked
}

func (r *rig) prepare(list ...string) map[string]*drapb.NodePrepareResourceResponse {
	r.t.Helper()
	reply, err := r.kubelet.NodePrepareResources(context.Background(), &drapb.NodePrepareResourcesRequest{Claims: names(list...)})
	if err != nil {
		r.t.Fatal(err)
	}
	return reply.Claims
}

func (r *rig) unprepare(list ...string) {
	r.t.Helper()
	reply, err := r.kubelet.NodeUnprepareResources(context.Background(), &drapb.NodeUnprepareResourcesRequest{Claims: names(list...)})
	if err != nil {
		r.t.Fatal(err)
	}
	for uid, said := range reply.Claims {
		if said.Error != "" {
			r.t.Errorf("%s: %s", uid, said.Error)
		}
	}
	if len(reply.Claims) != len(list) {
		r.t.Errorf("%d answers for %d claims", len(reply.Claims), len(list))
	}
}

func (r *rig) conditions(name string) map[string]metav1.Condition {
	r.t.Helper()
	if err := r.plugin.Round(context.Background()); err != nil {
		r.t.Fatal(err)
	}
	c, err := r.client.ResourceV1().ResourceClaims("ns").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	said := map[string]metav1.Condition{}
	for _, d := range c.Status.Devices {
		for _, condition := range d.Conditions {
			said[condition.Type] = condition
		}
	}
	return said
}

func TestFourClaimsHaveTheirVGPUsAndGiveThemBack(t *testing.T) {
	shares := map[string]string{"a": "60", "b": "20", "c": "10", "d": "10"}
	var objects []runtime.Object
	for name, percent := range shares {
		objects = append(objects, claim(name, percent, nil, `, "priority": 3`))
	}
	r := newRig(t, append(objects, claim("e", "1", nil))...)
	for range 2 {
		said := r.prepare("a", "b", "c", "d")
		for name := range shares {
			answer := said["uid-"+name]
			if answer == nil || answer.Error != "" || len(answer.Devices) != 1 {
				t.Fatalf("%s: %+v", name, answer)
			}
			d := answer.Devices[0]
			if d.PoolName != node || d.DeviceName != "nvidia0" || strings.Join(d.RequestNames, " ") != "gpu" || d.GetShareId() != "share-"+name ||
				strings.Join(d.CdiDeviceIds, " ") != "nvidia.com/gpu=0 rtxg.io/claim=uid-"+name {
				t.Errorf("%s: %+v", name, d)
			}
			v, err := r.daemon.VGPU(context.Background(), "k8s-uid-"+name)
			if want := resource.MustParse(shares[name]); err != nil || v == nil || v.MinPPM != want.Value()*10000 || v.Priority != 3 {
				t.Errorf("%s: %+v, %v", name, v, err)
			}
		}
	}
	// The scheduler would not place a fifth; where it did all the same, rtxgd refuses.
	if said := r.prepare("e")["uid-e"].Error; !strings.Contains(said, "ns/e") || !strings.Contains(said, "1%") {
		t.Errorf("%q", said)
	}
	r.unprepare("a")
	if said := r.prepare("e")["uid-e"].Error; said != "" {
		t.Error(said)
	}
	for range 2 {
		r.unprepare("a", "b", "c", "d", "e")
	}
	if left := r.daemon.Names(); len(left) != 0 {
		t.Error(left)
	}
	if files, _ := filepath.Glob(filepath.Join(r.options.State.CDI.Folder, "*")); len(files) != 0 {
		t.Error(files)
	}
}

func TestOneBadClaimDoesNotStopTheOthers(t *testing.T) {
	r := newRig(t, claim("good", "10", nil), claim("bad", "10", nil, `, "limits": "1%"`))
	said := r.prepare("good", "bad")
	if said["uid-good"].Error != "" || !strings.Contains(said["uid-bad"].Error, "limits") || !strings.Contains(said["uid-bad"].Error, "ns/bad") {
		t.Errorf("%+v", said)
	}
}

func TestGarbageFromTheKubeletIsAnError(t *testing.T) {
	unallocated := claim("none", "10", nil)
	unallocated.Status.Allocation = nil
	r := newRig(t, unallocated, claim("there", "10", nil))
	ctx := context.Background()
	for _, c := range []*drapb.Claim{{}, {Namespace: "ns", Name: "absent", Uid: "x"}, {Namespace: "ns", Name: "none", Uid: "uid-none"},
		{Namespace: "ns", Name: "there", Uid: "another"}} {
		if reply, err := r.kubelet.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{c}}); err == nil {
			t.Errorf("%+v: %+v", c, reply)
		}
	}
	reply, err := r.kubelet.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{
		{Uid: "../../etc/passwd"}, {Uid: "never-prepared"}}})
	if err != nil || !strings.Contains(reply.Claims["../../etc/passwd"].Error, "UID") || reply.Claims["never-prepared"].Error != "" {
		t.Errorf("%+v, %v", reply, err)
	}
	if said := r.prepare("there")["uid-there"].Error; said != "" {
		t.Error(said)
	}
}

func TestAnotherPluginGoesOnWhereOneEnded(t *testing.T) {
	r := newRig(t, claim("a", "60", nil))
	r.prepare("a")
	r.stop()
	// The node boots: rtxgd and the folder of CDI have forgotten.
	r.daemon.Forget()
	if err := os.RemoveAll(r.options.State.CDI.Folder); err != nil {
		t.Fatal(err)
	}
	r.daemon.Begin()
	r.start()
	if left := r.daemon.Names(); len(left) != 1 || left[0] != "k8s-uid-a" {
		t.Error(left)
	}
	r.unprepare("a")
	if left := r.daemon.Names(); len(left) != 0 {
		t.Error(left)
	}
}

func TestWhatTheKubeletForgotIsGivenBack(t *testing.T) {
	r := newRig(t, claim("a", "60", nil))
	r.prepare("a")
	if err := r.client.ResourceV1().ResourceClaims("ns").Delete(context.Background(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.plugin.Round(context.Background()); err != nil {
		t.Error(err)
	}
	if left := r.daemon.Names(); len(left) != 0 {
		t.Error(left)
	}
}

func TestTheNodesSliceIsPublished(t *testing.T) {
	r := newRig(t)
	if err := r.plugin.Round(context.Background()); err != nil {
		t.Fatal(err)
	}
	var slice resourceapi.ResourceSlice
	testrig.Wait(t, "the slice is there", func() bool {
		list, err := r.client.ResourceV1().ResourceSlices().List(context.Background(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return false
		}
		slice = list.Items[0]
		return true
	})
	if slice.Spec.Driver != gpus.Driver || *slice.Spec.NodeName != node || slice.Spec.Pool.Name != node || len(slice.Spec.Devices) != 1 ||
		slice.Spec.Devices[0].Name != "nvidia0" || !*slice.Spec.Devices[0].AllowMultipleAllocations {
		t.Errorf("%+v", slice.Spec)
	}
}

func TestAClaimThatGoesWhileItsStatusIsWrittenIsNoError(t *testing.T) {
	r := newRig(t, claim("a", "60", nil))
	r.prepare("a")
	r.client.PrependReactor("update", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "a")
	})
	if err := r.plugin.Round(context.Background()); err != nil {
		t.Error(err)
	}
	r.unprepare("a")
}

func TestConditionsSayWhatBecameOfTheClaim(t *testing.T) {
	r := newRig(t, claim("a", "60", nil))
	r.prepare("a")
	said := r.conditions("a")
	for _, kind := range []string{status.Ready, status.Managed, status.PromisesKept} {
		if said[kind].Status != metav1.ConditionTrue {
			t.Errorf("%s: %+v", kind, said[kind])
		}
	}
	since := said[status.Ready].LastTransitionTime
	if again := r.conditions("a")[status.Ready].LastTransitionTime; again != since {
		t.Errorf("%s, then %s", since, again)
	}
	// A program that the lever cannot govern uses the GPU.
	r.daemon.Process("alien")
	testrig.Wait(t, "the claim says UNMANAGED", func() bool {
		c := r.conditions("a")[status.Managed]
		return c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "sleep") && strings.Contains(c.Message, "UNMANAGED")
	})
	// A daemon that dies is said, and one that comes back as well.
	r.daemon.Kill()
	_ = r.plugin.Round(context.Background())
	c, err := r.client.ResourceV1().ResourceClaims("ns").Get(context.Background(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ready := meta.FindStatusCondition(c.Status.Devices[0].Conditions, status.Ready); ready == nil || ready.Status != metav1.ConditionFalse ||
		ready.Reason != "NoDaemon" {
		t.Errorf("%+v", ready)
	}
	r.daemon.Begin()
	if ready := r.conditions("a")[status.Ready]; ready.Status != metav1.ConditionTrue {
		t.Errorf("%+v", ready)
	}
}

func TestAdministratorsAccessGivesMetricsAndNothingElse(t *testing.T) {
	r := newRig(t, claim("admin", "0", func(result *resourceapi.DeviceRequestAllocationResult) {
		result.AdminAccess, result.ShareID, result.ConsumedCapacity = ptr.To(true), nil, nil
	}))
	answer := r.prepare("admin")["uid-admin"]
	if answer.Error != "" || strings.Join(answer.Devices[0].CdiDeviceIds, " ") != "rtxg.io/claim=uid-admin-admin" {
		t.Fatalf("%+v", answer)
	}
	if left := r.daemon.Names(); len(left) != 0 {
		t.Error(left)
	}
	text, err := os.ReadFile(filepath.Join(r.options.State.CDI.Metrics, "rtxg.prom"))
	if err != nil || !strings.Contains(string(text), "rtxg_up 1") {
		t.Errorf("%s, %v", text, err)
	}
	if said := r.conditions("admin"); len(said) != 1 || said[status.Ready].Status != metav1.ConditionTrue {
		t.Errorf("%+v", said)
	}
	r.unprepare("admin")
}
