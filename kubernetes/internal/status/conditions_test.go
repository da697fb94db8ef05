// SPDX-License-Identifier: MIT

package status

import (
	"errors"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"rtxg.io/kubernetes/api/v1alpha1"
	"rtxg.io/kubernetes/internal/claims"
	"rtxg.io/kubernetes/internal/rtxgd"
)

func wanted() *claims.Wanted {
	return &claims.Wanted{UID: "u", Devices: []claims.Device{{Request: "gpu", Pool: "n", Device: "nvidia0", GPU: "nvidia0", ShareID: "s"}},
		Settings: &v1alpha1.Settings{MinPPM: 600000, MaxPPM: v1alpha1.PPM, Priority: 1}}
}

func round(j *Judge, view *View) map[string]metav1.Condition {
	w := wanted()
	if view.VGPUs == nil {
		view.VGPUs = map[string]rtxgd.VGPU{"k8s-u": {Name: "k8s-u", MinPPM: 600000, MaxPPM: v1alpha1.PPM}}
	}
	conditions := map[string]metav1.Condition{}
	for _, c := range j.Conditions(w, &w.Devices[0], view) {
		conditions[c.Type] = c
	}
	return conditions
}

func broken(ns int64, now ...string) []rtxgd.GPUStats {
	return []rtxgd.GPUStats{{GPU: "nvidia0", VGPUs: []rtxgd.VGPUOnGPU{{VGPU: "k8s-u", Broken: now,
		BrokenNS: map[string]int64{"share": ns}, BrokenBy: ptr.To(4242)}}}}
}

func TestAProgramOutsideMakesTheClaimUnmanaged(t *testing.T) {
	for gpu, status := range map[*string]metav1.ConditionStatus{ptr.To("nvidia0"): metav1.ConditionFalse, nil: metav1.ConditionFalse,
		ptr.To("nvidia1"): metav1.ConditionTrue} {
		c := round(&Judge{}, &View{Using: []rtxgd.Process{{PID: 7, Comm: "python3", GPU: gpu, Managed: ptr.To(false), Remedy: "restart it"},
			{PID: 8, GPU: ptr.To("nvidia0"), Managed: ptr.To(true)}, {PID: 9, GPU: ptr.To("nvidia0")}}})[Managed]
		if c.Status != status {
			t.Errorf("%v: %+v", ptr.Deref(gpu, "?"), c)
		}
		if status == metav1.ConditionFalse && (!strings.Contains(c.Message, "process 7 (python3)") || !strings.Contains(c.Message, "restart it") ||
			strings.Contains(c.Message, "process 8")) {
			t.Error(c.Message)
		}
	}
}

func TestABrokenPromiseStaysSaidForSomeRounds(t *testing.T) {
	j := &Judge{}
	if c := round(j, &View{Stats: broken(0)})[PromisesKept]; c.Status != metav1.ConditionTrue {
		t.Fatalf("%+v", c)
	}
	// It was broken between two rounds only.
	c := round(j, &View{Stats: broken(5)})[PromisesKept]
	if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "share") || !strings.Contains(c.Message, "process 4242") {
		t.Fatalf("%+v", c)
	}
	for range quietRounds {
		if c := round(j, &View{Stats: broken(5)})[PromisesKept]; c.Status != metav1.ConditionFalse {
			t.Fatal("it is forgotten too early")
		}
	}
	if c := round(j, &View{Stats: broken(5)})[PromisesKept]; c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	if c := round(j, &View{Stats: broken(0)})[PromisesKept]; c.Status != metav1.ConditionTrue { // the daemon started again
		t.Errorf("%+v", c)
	}
	if c := round(j, &View{Stats: broken(0, "share")})[PromisesKept]; c.Status != metav1.ConditionFalse {
		t.Errorf("%+v", c)
	}
	j.Forget(map[string]bool{})
	if len(j.last)+len(j.quiet)+len(j.what) != 0 {
		t.Error("what is known of a claim outlives it")
	}
}

func TestMemoryThatIsCountedAndNotKeptIsSaid(t *testing.T) {
	w := wanted()
	w.Settings.Memory = 20 << 30
	limit := func(state string, cgroups ...string) rtxgd.VGPU {
		return rtxgd.VGPU{Cgroups: cgroups, MemoryBytes: 20 << 30, MemoryLimit: &rtxgd.MemoryLimit{State: state, Why: "why"}}
	}
	for _, c := range []struct {
		vgpu           rtxgd.VGPU
		unlimited      string
		status         metav1.ConditionStatus
		reason, inside string
	}{
		{limit("held", "/pod"), "", metav1.ConditionTrue, "Held", "20Gi"},
		{limit("trying", "/pod"), "", metav1.ConditionUnknown, "Trying", "why"},
		{limit("refused"), "", metav1.ConditionUnknown, "NoContainer", "why"},
		{limit("waiting", "/pod"), "", metav1.ConditionUnknown, "NoContainer", "why"},
		{limit("refused", "/pod"), "", metav1.ConditionFalse, "Refused", "why"},
		{rtxgd.VGPU{}, "driver 580 cannot", metav1.ConditionFalse, "NoMechanism", "driver 580 cannot"},
		{rtxgd.VGPU{}, "", metav1.ConditionUnknown, "Trying", "20Gi"},
	} {
		said := (&Judge{}).Conditions(w, &w.Devices[0], &View{VGPUs: map[string]rtxgd.VGPU{"k8s-u": c.vgpu},
			Unlimited: map[string]string{"k8s-u": c.unlimited}})
		got := said[len(said)-1]
		if got.Type != MemoryLimited || got.Status != c.status || got.Reason != c.reason || !strings.Contains(got.Message, c.inside) {
			t.Errorf("%+v: %+v", c.vgpu, got)
		}
	}
	// A claim that asks for no memory says nothing of it.
	if c := round(&Judge{}, &View{}); len(c) != 3 {
		t.Errorf("%+v", c)
	}
}

func TestALostVGPUAndASilentDaemonAreSaid(t *testing.T) {
	c := round(&Judge{}, &View{VGPUs: map[string]rtxgd.VGPU{}})
	if len(c) != 1 || c[Ready].Status != metav1.ConditionFalse || c[Ready].Reason != "NoVGPU" {
		t.Errorf("%+v", c)
	}
	c = round(&Judge{}, &View{Silent: errors.New("no answer")})
	if len(c) != 1 || c[Ready].Reason != "NoDaemon" {
		t.Errorf("%+v", c)
	}
}

func TestOtherDriversAreLeftAloneAndNothingIsWrittenTwice(t *testing.T) {
	w := wanted()
	claim := &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Devices: []resourceapi.AllocatedDeviceStatus{
		{Driver: "net.example.com", Pool: "n", Device: "nvidia0"}}}}
	conditions := (&Judge{}).Conditions(w, &w.Devices[0], &View{VGPUs: map[string]rtxgd.VGPU{"k8s-u": {}}})
	for i, changes := range []bool{true, false} {
		if put(claim, &w.Devices[0], details(w, &w.Devices[0]), conditions) != changes {
			t.Errorf("round %d", i)
		}
	}
	if len(claim.Status.Devices) != 2 || len(claim.Status.Devices[0].Conditions) != 0 || len(claim.Status.Devices[1].Conditions) != 3 {
		t.Errorf("%+v", claim.Status.Devices)
	}
	if put(claim, &w.Devices[0], nil, conditions[:1]) != true || len(claim.Status.Devices[1].Conditions) != 1 {
		t.Error("conditions that are not known any more stay")
	}
}
