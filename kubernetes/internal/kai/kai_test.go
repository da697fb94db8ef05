// SPDX-License-Identifier: MIT

package kai

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"rtxg.io/kubernetes/internal/gpus"
	"rtxg.io/kubernetes/internal/testrig"
)

func pod(fraction string) *corev1.Pod {
	from := &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{
		Name: "web-abc-shared-gpu-0"}, Key: visible}}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "1234-ab", Annotations: map[string]string{Fraction: fraction}},
		Spec:   corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: visible, ValueFrom: from}}}}},
		Status: corev1.PodStatus{QOSClass: corev1.PodQOSBurstable, Phase: corev1.PodPending}}
}

func TestAFractionBecomesAReservation(t *testing.T) {
	for text, ppm := range map[string]int64{"0.5": 500000, "0.25": 250000, "1": 1000000, " 0.1 ": 100000} {
		s, err := Settings(pod(text))
		if err != nil || s.MinPPM != ppm || s.MaxPPM != 1000000 {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "half", "0", "-0.5", "1.5", "NaN", "Inf"} {
		if s, err := Settings(pod(text)); err == nil || !strings.Contains(err.Error(), Fraction) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
	two := pod("0.5")
	two.Annotations[Devices] = "2"
	if _, err := Settings(two); err == nil || !strings.Contains(err.Error(), "2 GPUs") {
		t.Error(err)
	}
	if s, err := Settings(&corev1.Pod{}); s != nil || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestCgroupsAreNamedAsTheKubeletNamesThem(t *testing.T) {
	for class, names := range map[corev1.PodQOSClass][2]string{
		corev1.PodQOSGuaranteed: {"/kubepods.slice/kubepods-pod1234_ab.slice", "/r/kubepods/pod1234-ab"},
		corev1.PodQOSBurstable: {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_ab.slice",
			"/r/kubepods/burstable/pod1234-ab"},
		corev1.PodQOSBestEffort: {"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1234_ab.slice",
			"/r/kubepods/besteffort/pod1234-ab"},
	} {
		p := pod("1")
		p.Status.QOSClass = class
		got := [2]string{(&Pods{Cgroups: Systemd}).Cgroup(p), (&Pods{Cgroups: Cgroupfs, Root: "/r"}).Cgroup(p)}
		if got != names {
			t.Errorf("%s: %v", class, got)
		}
	}
}

func TestGPUsAreKnownByNumberAndUUID(t *testing.T) {
	found := []gpus.GPU{{Name: "nvidia0", UUID: "GPU-a"}, {Name: "nvidia1", UUID: "GPU-b"}}
	for value, name := range map[string]string{"0": "nvidia0", "GPU-b": "nvidia1", "k8s.device-plugin.nvidia.com/gpu=1": "nvidia1",
		"nvidia.com/gpu=GPU-a": "nvidia0"} {
		if g, err := match(value, found); err != nil || g.Name != name {
			t.Errorf("%s: %+v, %v", value, g, err)
		}
	}
	for _, value := range []string{"", "2", "void", "all", "0,1", "GPU-"} {
		if g, err := match(value, found); err == nil {
			t.Errorf("%s: %+v", value, g)
		}
	}
}

func TestPodsGetVGPUsAndLoseThem(t *testing.T) {
	d := testrig.Start(t, testrig.Nvidia)
	ctx := context.Background()
	client := fake.NewClientset(pod("0.5"))
	pods := &Pods{Client: client, Node: "n", Daemon: &d.Client, Cgroups: Systemd}
	found, err := (&gpus.Finder{Daemon: &d.Client, Levers: []string{"nvidia"}}).Find(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := pods.Sync(ctx, found); err == nil || !strings.Contains(err.Error(), "not known yet") {
		t.Error(err) // KAI has not bound it
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-abc-shared-gpu-0"}, Data: map[string]string{visible: "0"}}
	if _, err := client.CoreV1().ConfigMaps("ns").Create(ctx, config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := pods.Sync(ctx, found); err != nil {
			t.Fatal(err)
		}
		v, err := d.VGPU(ctx, "k8s-kai-1234-ab")
		if err != nil || v == nil || v.MinPPM != 500000 || *v.GPU != "nvidia0" || !slices.Equal(v.Cgroups, []string{pods.Cgroup(pod("0.5"))}) {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if err := client.CoreV1().Pods("ns").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Sync(ctx, found); err != nil || len(d.Names()) != 0 {
		t.Errorf("%v, %v", d.Names(), err)
	}
}
