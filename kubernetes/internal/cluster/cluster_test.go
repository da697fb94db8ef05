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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	until(t, "the slice says how many claims there are", func() error {
		list, err := rig.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err == nil && *list.Items[0].Spec.Devices[0].Attributes["claims"].IntValue != 4 {
			err = fmt.Errorf("%+v", list.Items[0].Spec.Devices)
		}
		return err
	})
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

// The scheduler counts a claim twice while it writes it down, and refuses pods for which there is
// room: see "Limits" in the README.
func TestPodsOfOneMomentAreAllPlaced(t *testing.T) {
	makeNamespace(t, "moment", nil)
	all := read(t, "examples/four-pods.yaml")
	for _, name := range []string{"sixty", "twenty", "ten"} {
		apply(t, "moment", pick(t, all, "ResourceClaimTemplate", name))
	}
	names := []string{"first", "second", "third", "fourth"}
	for range 4 {
		var pods []*corev1.Pod
		for _, name := range names {
			apply(t, "moment", pick(t, all, "Pod", name))
		}
		for _, name := range names {
			pod, _ := running(t, "moment", name)
			pods = append(pods, pod)
		}
		for _, pod := range pods {
			deleted(t, pod)
		}
		empty(t)
	}
}

// At each step the plugin is killed; another one comes, as the kubelet would start it. Then the
// kubelet goes on (as it does when the pod stays), or the pod is deleted at once.
func TestAPluginThatDiesAtAnyStepLeavesNothing(t *testing.T) {
	makeNamespace(t, "death", nil)
	four := read(t, "examples/four-pods.yaml")
	apply(t, "death", pick(t, four, "ResourceClaimTemplate", "sixty"))
	for _, what := range []string{"prepare", "unprepare"} {
		step := 0
		for ; ; step++ {
			apply(t, "death", pick(t, four, "Pod", "first"))
			pod := placed(t, "death", "first")
			of := claimsOf(t, pod)
			if what == "unprepare" {
				_, err := tryPrepare(of)
				must(t, err)
				must(t, rig.client.CoreV1().Pods("death").Delete(ctx, pod.Name, metav1.DeleteOptions{}))
			}
			stopPlugin()
			startPlugin(t, &step)
			var err error
			if what == "prepare" {
				_, err = tryPrepare(of)
			} else {
				err = tryUnprepare(of)
			}
			survived := err == nil
			stopPlugin()
			if !survived {
				log, _ := os.ReadFile(filepath.Join(rig.folder, "plugin.log"))
				at := strings.LastIndex(string(log), "died before: ")
				if at < 0 {
					t.Fatalf("%s, step %d: %v", what, step, err)
				}
				t.Logf("%s %s", what, strings.SplitN(string(log[at:]), "\n", 2)[0])
			}
			startPlugin(t, nil)
			if what == "prepare" && step%2 == 0 {
				_, err := tryPrepare(of)
				must(t, err)
				holds(t, of[0], 600000, 1000000, 1, 0)
				if names := rig.daemon.Names(); len(names) != 1 {
					t.Error(names)
				}
				condition(t, of[0], status.Ready, metav1.ConditionTrue)
			}
			if what == "prepare" {
				must(t, rig.client.CoreV1().Pods("death").Delete(ctx, pod.Name, metav1.DeleteOptions{}))
			}
			if what == "prepare" || step%2 == 0 {
				must(t, tryUnprepare(of))
				must(t, emptyNode(t))
			} else {
				// The kubelet has forgotten the pod as well: a plugin that starts looks at what is still claimed.
				remove(t, pod)
				until(t, "the claim has gone", func() error {
					_, err := rig.client.ResourceV1().ResourceClaims("death").Get(ctx, of[0].Name, metav1.GetOptions{})
					if err == nil {
						return fmt.Errorf("%s is there", of[0].Name)
					}
					return nil
				})
				stopPlugin()
				startPlugin(t, nil)
			}
			remove(t, pod)
			empty(t)
			if t.Failed() {
				t.Fatalf("%s, step %d", what, step)
			}
			if survived {
				break
			}
		}
		if step < 5 {
			t.Errorf("%s has %d steps only", what, step)
		}
	}
}

func TestTheClassesAndSelectorsExpressionsAreTheSchedulers(t *testing.T) {
	makeNamespace(t, "choice", nil)
	// A node whose GPU no lever governs, as its plugin would publish it.
	makeNode(t, "node-2")
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: gpus.Driver, NodeName: ptr.To("node-2"), Pool: resourceapi.ResourcePool{Name: "node-2", Generation: 1, ResourceSliceCount: 1},
		Devices: gpus.Devices([]gpus.GPU{{Device: "nvidia0", Name: "nvidia0", Lever: "nvidia", Share: 100, Memory: 80 << 30}})}}
	_, err := rig.client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{})
	must(t, err)
	defer func() {
		must(t, rig.client.ResourceV1().ResourceSlices().Delete(ctx, "node-2", metav1.DeleteOptions{}))
		must(t, rig.client.CoreV1().Nodes().Delete(ctx, "node-2", metav1.DeleteOptions{}))
	}()
	apply(t, "choice", read(t, "examples/latency.yaml")...)
	apply(t, "choice", read(t, "examples/best-effort.yaml")...)
	pod, claim := running(t, "choice", "chat")
	if pod.Spec.NodeName != nodeName {
		t.Error(pod.Spec.NodeName)
	}
	holds(t, claim, 300000, 800000, 50, 5*time.Millisecond)
	memory := claim.Status.Allocation.Devices.Results[0].ConsumedCapacity[gpus.Memory]
	if memory.String() != "20Gi" {
		t.Error(memory.String())
	}
	// The driver limits cgroups: a container's is bound by the CDI hook.
	if c := condition(t, claim, status.MemoryLimited, metav1.ConditionUnknown); c.Reason != "NoContainer" {
		t.Errorf("%+v", c)
	}
	rig.daemon.Cgroup("/chat", claims.VGPU(claim.UID))
	has(t, condition(t, claim, status.MemoryLimited, metav1.ConditionTrue).Message, "20Gi")
	if bytes := rig.daemon.Limited("/chat"); bytes != 20<<30 {
		t.Errorf("%d bytes", bytes)
	}
	on := func(name, template, node string) {
		apply(t, "choice", onNode(name, template, node))
	}
	on("elsewhere", "background", "node-2")
	has(t, refused(t, "choice", "elsewhere"), "cannot allocate all claims")
	on("beside", "background", nodeName)
	beside, less := running(t, "choice", "beside")
	holds(t, less, 0, 500000, 1, 0)
	for _, p := range []*corev1.Pod{pod, beside} {
		deleted(t, p)
	}
	must(t, rig.client.CoreV1().Pods("choice").Delete(ctx, "elsewhere", metav1.DeleteOptions{}))
	empty(t)

	// An expression that cannot be right is refused, so those of the chart were read.
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
		{CEL: &resourceapi.CELDeviceSelector{Expression: "device.drivers == 'gpu.rtxg.io'"}}}}}
	if _, err := rig.client.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err == nil {
		t.Error("a class with a field that does not exist is accepted")
	} else {
		has(t, err.Error(), "undefined field 'drivers'")
	}
	until(t, "the policy's expressions are checked", func() error {
		policy, err := rig.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, "rtxg-slices", metav1.GetOptions{})
		if err == nil && policy.Status.TypeChecking == nil {
			err = fmt.Errorf("%+v", policy.Status)
		}
		if err == nil && len(policy.Status.TypeChecking.ExpressionWarnings) != 0 {
			t.Fatalf("%+v", policy.Status.TypeChecking)
		}
		return err
	})
}

// onNode is a pod with a claim of the template.
func onNode(name, template, node string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{
			"nodeSelector":   map[string]any{corev1.LabelHostname: node},
			"resourceClaims": []any{map[string]any{"name": "gpu", "resourceClaimTemplateName": template}},
			"containers": []any{map[string]any{"name": "main", "image": "example.com/none",
				"resources": map[string]any{"claims": []any{map[string]any{"name": "gpu"}}}}}}}}
}

// configured is a claim with parameters of a driver.
func configured(version, driver, parameters string) string {
	return `{apiVersion: resource.k8s.io/` + version + `, kind: ResourceClaim, metadata: {generateName: c-}, spec: {devices: {requests: [{name: gpu,
  exactly: {deviceClassName: gpu.rtxg.io, capacity: {requests: {share: "10"}}}}], config: [{opaque: {driver: ` + driver + `, parameters: ` + parameters + `}}]}}}`
}

const (
	good = `{apiVersion: gpu.rtxg.io/v1alpha1, kind: VGPUConfig, reservation: 10%}`
	bad  = `{apiVersion: gpu.rtxg.io/v1alpha1, kind: VGPUConfig, reservation: 20%, limits: 1%}`
)

func TestTheWebhookRefusesWhatCannotBeRight(t *testing.T) {
	makeNamespace(t, "asking", nil)
	try := func(text string) error {
		_, err := rig.create("asking", objects(t, []byte(text))[0])
		return err
	}
	refuses := func(text string, words ...string) {
		t.Helper()
		if err := try(text); err == nil {
			t.Errorf("accepted: %s", text)
		} else {
			has(t, err.Error(), words...)
		}
	}
	for _, version := range []string{"v1", "v1beta2"} { // the second comes to the webhook as the first
		must(t, try(configured(version, gpus.Driver, good)))
		refuses(configured(version, gpus.Driver, bad), "claims.gpu.rtxg.io", "spec.devices.config[0]", "limits")
	}
	over := strings.Replace(good, "10%", "20%", 1)
	refuses(configured("v1", gpus.Driver, over), "20%", "10%", "reserve less")
	refuses(`{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: t}, spec: {spec: {devices: {config: [{opaque: {driver: gpu.rtxg.io,
  parameters: `+bad+`}}]}}}}`, "templates.gpu.rtxg.io", "spec.spec.devices.config[0]", "limits")
	refuses(`{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: c}, spec: {config: [{opaque: {driver: gpu.rtxg.io,
  parameters: `+bad+`}}]}}`, "classes.gpu.rtxg.io", "spec.config[0]", "limits")

	// Without a webhook nothing of ours can be written, and what is for others can.
	kill(rig.webhook)
	must(t, try(configured("v1", "gpu.example.com", bad)))
	refuses(configured("v1", gpus.Driver, good), "claims.gpu.rtxg.io", "failed to call webhook")
	startWebhook(t)
	must(t, try(configured("v1", gpus.Driver, good)))
	must(t, rig.client.ResourceV1().ResourceClaims("asking").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	empty(t)
}

func TestAdministratorsAccessIsMetricsAndNothingElse(t *testing.T) {
	makeNamespace(t, "users", nil)
	makeNamespace(t, "admins", map[string]string{resourceapi.DRAAdminNamespaceLabelKey: "true"})
	template := read(t, "examples/admin.yaml")[0]
	if _, err := rig.create("users", template.DeepCopy()); err == nil {
		t.Error("users may have administrator's access")
	} else {
		has(t, err.Error(), resourceapi.DRAAdminNamespaceLabelKey)
	}
	// It is no part of the GPU: it is placed where others have shares, and leaves room for theirs.
	apply(t, "admins", pick(t, read(t, "examples/four-pods.yaml"), "ResourceClaimTemplate", "sixty"), onNode("work", "sixty", nodeName))
	work, _ := running(t, "admins", "work")
	apply(t, "admins", template, onNode("watch", template.GetName(), nodeName))
	watch, claim := running(t, "admins", "watch")
	if names := rig.daemon.Names(); len(names) != 1 {
		t.Error(names)
	}
	answer, err := tryPrepare(claimsOf(t, watch))
	must(t, err)
	if ids := strings.Join(answer.Devices[0].CdiDeviceIds, " "); ids != "rtxg.io/claim="+string(claim.UID)+"-admin" {
		t.Error(ids)
	}
	text, err := os.ReadFile(folder("metrics/rtxg.prom"))
	must(t, err)
	has(t, string(text), "rtxg_up 1")
	if ready := condition(t, claim, status.Ready, metav1.ConditionTrue); ready.Reason != "Metrics" {
		t.Errorf("%+v", ready)
	}
	deleted(t, watch)
	deleted(t, work)
	empty(t)
}

// KAI itself is not there: what its scheduler and its binder write is written by the test.
func TestAPodOfKAIHasTheFractionThatItsAnnotationSays(t *testing.T) {
	makeNamespace(t, "kai", nil)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"gpu-fraction": "0.25"}},
		Spec: corev1.PodSpec{SchedulerName: "kai-scheduler", Containers: []corev1.Container{{Name: "main", Image: "example.com/none",
			Env: []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "web-shared-gpu-0"}, Key: "NVIDIA_VISIBLE_DEVICES"}}}}}}}}
	pod, err := rig.client.CoreV1().Pods("kai").Create(ctx, pod, metav1.CreateOptions{})
	must(t, err)
	_, err = rig.client.CoreV1().ConfigMaps("kai").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web-shared-gpu-0"},
		Data: map[string]string{"NVIDIA_VISIBLE_DEVICES": "0"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, rig.client.CoreV1().Pods("kai").Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}}, metav1.CreateOptions{}))
	name := "k8s-kai-" + string(pod.UID)
	until(t, "the pod's vGPU is there", func() error {
		v, err := rig.daemon.VGPU(ctx, name)
		if err == nil && v == nil {
			err = fmt.Errorf("vGPUs are %v", rig.daemon.Names())
		}
		if err == nil && (v.MinPPM != 250000 || *v.GPU != "nvidia0" ||
			strings.Join(v.Cgroups, " ") != "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"+
				strings.ReplaceAll(string(pod.UID), "-", "_")+".slice") {
			t.Fatalf("%+v", v)
		}
		return err
	})
	remove(t, pod)
	until(t, "its vGPU has gone", func() error {
		if names := rig.daemon.Names(); len(names) != 0 {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
}
