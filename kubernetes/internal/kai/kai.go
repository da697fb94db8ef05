// SPDX-License-Identifier: MIT

// Package kai gives pods that the KAI scheduler placed on a part of a GPU a vGPU of that part, so
// that the fraction is not only counted but kept. KAI says the fraction in annotations of the pod,
// and the GPU in the environment of the container that gets it.
//
// May not: place a pod. KAI did.
package kai

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"rtxg.io/kubernetes/api/v1alpha1"
	"rtxg.io/kubernetes/internal/gpus"
	"rtxg.io/kubernetes/internal/rtxgd"
)

// Annotations of KAI that are read. A limit on compute has no annotation there yet, and its limits of
// memory are not ours to keep.
const (
	Fraction  = "gpu-fraction"
	Devices   = "gpu-fraction-num-devices"
	Container = "gpu-fraction-container-name"

	visible = "NVIDIA_VISIBLE_DEVICES"
	// Prefix begins the names of vGPUs of such pods. It begins as those of claims do, so that what
	// they reserve is not taken for the node's own.
	Prefix = gpus.VGPUPrefix + "kai-"
)

// Ways in which the kubelet names cgroups of pods.
const (
	Systemd  = "systemd"
	Cgroupfs = "cgroupfs"
)

// Pods looks after the annotated pods of one node.
type Pods struct {
	Client kubernetes.Interface
	Node   string
	Daemon *rtxgd.Client
	// Cgroups is Systemd or Cgroupfs, as the kubelet's cgroupDriver; Root is what comes before
	// kubepods, "" or "/kubelet".
	Cgroups, Root string
}

// Settings are what the pod's annotations ask for, or nil if they ask for nothing: the fraction is
// reserved, and what others leave may be used, as in KAI's own mode "fair".
func Settings(pod *corev1.Pod) (*v1alpha1.Settings, error) {
	text, ok := pod.Annotations[Fraction]
	if !ok {
		return nil, nil
	}
	fraction, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(fraction > 0 && fraction <= 1) {
		return nil, fmt.Errorf("annotation %s: %q is no part of a GPU; more than 0 and at most 1 is accepted", Fraction, text)
	}
	if devices := pod.Annotations[Devices]; devices != "" && devices != "1" {
		return nil, fmt.Errorf("annotation %s: the pod is on %s GPUs, and a vGPU is on one; leave the annotation out", Devices, devices)
	}
	return &v1alpha1.Settings{MinPPM: int64(math.Round(fraction * v1alpha1.PPM)), MaxPPM: v1alpha1.PPM,
		Priority: v1alpha1.PriorityMin}, nil
}

// Cgroup is the pod's cgroup, of all its containers.
func (p *Pods) Cgroup(pod *corev1.Pod) string {
	class, uid := "", string(pod.UID)
	switch pod.Status.QOSClass {
	case corev1.PodQOSBurstable:
		class = "burstable"
	case corev1.PodQOSBestEffort:
		class = "besteffort"
	}
	if p.Cgroups == Cgroupfs {
		if class != "" {
			class += "/"
		}
		return p.Root + "/kubepods/" + class + "pod" + uid
	}
	uid = strings.ReplaceAll(uid, "-", "_")
	if class == "" {
		return p.Root + "/kubepods.slice/kubepods-pod" + uid + ".slice"
	}
	return p.Root + "/kubepods.slice/kubepods-" + class + ".slice/kubepods-" + class + "-pod" + uid + ".slice"
}

// Sync makes the vGPUs of the pods that are there, and removes those of pods that have gone.
func (p *Pods) Sync(ctx context.Context, found []gpus.GPU) error {
	list, err := p.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + p.Node})
	if err != nil {
		return fmt.Errorf("pods of the node: %w", err)
	}
	there, err := p.Daemon.VGPUs(ctx)
	if err != nil {
		return err
	}
	var failed []error
	wanted := map[string]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		settings, err := Settings(pod)
		if settings == nil && err == nil {
			continue
		}
		name := Prefix + string(pod.UID)
		if err == nil {
			wanted[name] = true
			if slices.ContainsFunc(there, func(v rtxgd.VGPU) bool { return v.Name == name }) {
				continue
			}
			err = p.make(ctx, pod, name, settings, found)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	for _, v := range there {
		if strings.HasPrefix(v.Name, Prefix) && !wanted[v.Name] {
			failed = append(failed, p.Daemon.RemoveVGPU(ctx, v.Name))
		}
	}
	return errors.Join(failed...)
}

func (p *Pods) make(ctx context.Context, pod *corev1.Pod, name string, s *v1alpha1.Settings, found []gpus.GPU) error {
	gpu, err := p.gpu(ctx, pod, found)
	if err != nil {
		return err
	}
	cgroup := p.Cgroup(pod)
	if err := p.Daemon.CreateVGPU(ctx, map[string]any{"vgpu": name, "gpu": gpu.Name, "min_ppm": s.MinPPM, "max_ppm": s.MaxPPM,
		"priority": s.Priority, "cgroup": cgroup}); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Pod of KAI has its vGPU", "pod", pod.Namespace+"/"+pod.Name, "gpu", gpu.Name, "share",
		v1alpha1.FormatShare(s.MinPPM), "cgroup", cgroup)
	return nil
}

// gpu finds the GPU as the container will: from the environment that KAI gave to it.
func (p *Pods) gpu(ctx context.Context, pod *corev1.Pod, found []gpus.GPU) (*gpus.GPU, error) {
	container := pod.Annotations[Container]
	for _, c := range append(slices.Clone(pod.Spec.Containers), pod.Spec.InitContainers...) {
		if container != "" && c.Name != container {
			continue
		}
		for _, e := range c.Env {
			if e.Name != visible {
				continue
			}
			value := e.Value
			if from := e.ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
				config, err := p.Client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
				if err != nil {
					return nil, fmt.Errorf("its GPU is not known yet: %w", err)
				}
				value = config.Data[from.ConfigMapKeyRef.Key]
			}
			return match(value, found)
		}
		if container == "" {
			break // KAI gives the GPU to the first one
		}
	}
	return nil, fmt.Errorf("its GPU is not known: no container has %s in its environment; is the KAI scheduler's binder there?", visible)
}

// match knows numbers, UUIDs, and both as devices of CDI ("k8s.device-plugin.nvidia.com/gpu=0").
func match(value string, found []gpus.GPU) (*gpus.GPU, error) {
	name := value[strings.LastIndex(value, "=")+1:]
	for i := range found {
		if name != "" && (found[i].UUID == name || found[i].Name == "nvidia"+name) {
			return &found[i], nil
		}
	}
	return nil, fmt.Errorf("%s is %q, and rtxgd governs no such GPU; \"rtxg gpu ls\" on the node lists them", visible, value)
}
