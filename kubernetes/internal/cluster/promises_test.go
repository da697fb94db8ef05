// SPDX-License-Identifier: MIT

//go:build cluster

package cluster

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rtxg.io/kubernetes/internal/claims"
	"rtxg.io/kubernetes/internal/status"
)

func TestUnmanagedProgramsAndBrokenPromisesAreConditionsOfTheClaim(t *testing.T) {
	makeNamespace(t, "promises", nil)
	apply(t, "promises", objects(t, []byte(`{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: ninety}, spec: {spec:
  {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.rtxg.io, capacity: {requests: {share: "90"}}}}]}}}}`))[0], onNode("work", "ninety", nodeName))
	pod, claim := running(t, "promises", "work")
	vgpu := claims.VGPU(claim.UID)
	for _, kind := range []string{status.Ready, status.Managed, status.PromisesKept} {
		condition(t, claim, kind, metav1.ConditionTrue)
	}
	// The pod's own program, and one that the lever cannot stop: 90 % are not kept.
	own := rig.daemon.Process("hog")
	joins := func(pid int, vgpu string) {
		until(t, "the process is in its vGPU", func() error {
			return rig.daemon.Ask(ctx, "task-set", map[string]any{"pid": pid, "vgpu": vgpu}, nil)
		})
	}
	joins(own, vgpu)
	alien := rig.daemon.Process("alien")
	said := condition(t, claim, status.Managed, metav1.ConditionFalse)
	has(t, said.Message, "UNMANAGED", fmt.Sprintf("process %d", alien))
	if said.Reason != "UnmanagedPrograms" {
		t.Error(said.Reason)
	}
	rig.daemon.Gone(alien)
	condition(t, claim, status.Managed, metav1.ConditionTrue)

	stubborn := rig.daemon.Process("stubborn")
	said = condition(t, claim, status.PromisesKept, metav1.ConditionFalse)
	has(t, said.Message, "share")
	if said.Reason != "Broken" {
		t.Error(said.Reason)
	}
	rig.daemon.Gone(stubborn)
	condition(t, claim, status.PromisesKept, metav1.ConditionTrue)
	condition(t, claim, status.Managed, metav1.ConditionTrue)

	// A daemon that has gone is said as well.
	rig.daemon.Kill()
	if ready := condition(t, claim, status.Ready, metav1.ConditionFalse); ready.Reason != "NoDaemon" {
		t.Errorf("%+v", ready)
	}
	rig.daemon.Begin()
	condition(t, claim, status.Ready, metav1.ConditionTrue)
	rig.daemon.Gone(own)
	deleted(t, pod)
	empty(t)
}
