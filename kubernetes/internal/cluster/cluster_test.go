// SPDX-License-Identifier: MIT

//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"rtxg.io/kubernetes/internal/claims"
	"rtxg.io/kubernetes/internal/gpus"
	"rtxg.io/kubernetes/internal/status"
)

// holds checks the claim's vGPU in rtxgd.
func holds(t *testing.T, claim *resourceapi.ResourceClaim, minPPM, maxPPM int64, priority int, latency time.Duration) {
	t.Helper()
	v, err := rig.daemon.VGPU(ctx, claims.VGPU(claim.UID))
	must(t, err)
	if v == nil || v.GPU == nil || *v.GPU != "nvidia0" || v.MinPPM != minPPM || v.MaxPPM != maxPPM || v.Priority != priority ||
		v.LatencyNS != latency.Nanoseconds() {
		t.Errorf("%s: %+v", claim.Name, v)
	}
}

func TestThePluginsSliceComesWithTheRightsOfTheChart(t *testing.T) {
	var slice *resourceapi.ResourceSlice
	until(t, "the slice is there", func() error {
		list, err := rig.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("%d slices", len(list.Items))
		}
		if err == nil {
			slice = &list.Items[0]
		}
		return err
	})
	device := slice.Spec.Devices[0]
	share, memory := device.Capacity[gpus.Share], device.Capacity[gpus.Memory]
	if slice.Spec.Driver != gpus.Driver || *slice.Spec.NodeName != nodeName || device.Name != "nvidia0" || share.Value.Value() != 100 ||
		memory.Value.Value() != 80<<30 || !*device.AllowMultipleAllocations {
		t.Errorf("%+v", slice.Spec)
	}
	// The same account, from the same node's pod, may not speak for another node.
	config := rest.CopyConfig(rig.config)
	config.BearerToken = ""
	config.BearerTokenFile = tokenFile(t)
	plugin, err := kubernetes.NewForConfig(config)
	must(t, err)
	other := slice.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Name: "another"}
	other.Spec.NodeName, other.Spec.Pool.Name = ptr.To("node-9"), "node-9"
	if _, err := plugin.ResourceV1().ResourceSlices().Create(ctx, other, metav1.CreateOptions{}); err == nil {
		t.Error("the plugin wrote a slice of another node")
	} else {
		has(t, err.Error(), "rtxg-slices", `may not write a slice of node "node-9"`)
	}
	if _, err := plugin.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("the plugin reads secrets")
	}
}

// tokenFile has the token of the plugin that runs.
func tokenFile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rig.folder, "plugin.conf"))
	must(t, err)
	_, token, _ := strings.Cut(string(text), "token: ")
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte(strings.TrimSpace(strings.SplitN(token, "\n", 2)[0])), 0o600))
	return file
}

func TestFourPodsArePlacedAndAFifthSaysWhyItIsNot(t *testing.T) {
	makeNamespace(t, "four", nil)
	all := read(t, "examples/four-pods.yaml")
	for _, name := range []string{"sixty", "twenty", "ten"} {
		apply(t, "four", pick(t, all, "ResourceClaimTemplate", name))
	}
	pods := map[string]*corev1.Pod{}
	for name, percent := range map[string]int64{"first": 60, "second": 20, "third": 10, "fourth": 10} {
		// One after the other: see "Limits" in the README.
		apply(t, "four", pick(t, all, "Pod", name))
		pod, claim := running(t, "four", name)
		pods[name] = pod
		result := claim.Status.Allocation.Devices.Results[0]
		share := result.ConsumedCapacity[gpus.Share]
		if result.Driver != gpus.Driver || result.Device != "nvidia0" || result.ShareID == nil || share.Value() != percent {
			t.Errorf("%s: %+v", name, result)
		}
		holds(t, claim, percent*10000, 1000000, 1, 0)
		has(t, condition(t, claim, status.Ready, metav1.ConditionTrue).Message, fmt.Sprintf("reservation %d%%", percent))
	}
	if names := rig.daemon.Names(); len(names) != 4 {
		t.Error(names)
	}
	// Events show this message, and "kubectl describe pod".
	apply(t, "four", pick(t, all, "Pod", "fifth"))
	has(t, refused(t, "four", "fifth"), "0/1 nodes are available", "cannot allocate all claims")
	until(t, "an event says so", func() error {
		events, err := rig.client.CoreV1().Events("four").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=fifth"})
		for i := range events.Items {
			if events.Items[i].Reason == "FailedScheduling" && strings.Contains(events.Items[i].Message, "cannot allocate all claims") {
				return nil
			}
		}
		return fmt.Errorf("%d events, %v", len(events.Items), err)
	})
	// What one gives back is the fifth's.
	deleted(t, pods["fourth"])
	pod, claim := running(t, "four", "fifth")
	pods["fourth"] = pod
	holds(t, claim, 100000, 1000000, 1, 0)
	for _, pod := range pods {
		deleted(t, pod)
	}
	empty(t)
}
