// SPDX-License-Identifier: MIT

//go:build cluster

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/ptr"

	"rtxg.io/kubernetes/internal/gpus"
	"rtxg.io/kubernetes/internal/testrig"
)

const (
	namespace = "gpu-system" // of the chart
	nodeName  = "node-1"
)

// rig is the cluster with one node that has a GPU. There is one for all tests; each leaves it as it
// found it.
var rig struct {
	*cluster
	daemon  *testrig.Daemon
	program string // rtxg-kubernetes
	plugin  *exec.Cmd
	kubelet drapb.DRAPluginClient
	link    *grpc.ClientConn
	webhook *exec.Cmd
}

func folder(name string) string { return filepath.Join(rig.daemon.Folder, name) }

// start brings up the cluster, installs the chart, and does for its pods what a kubelet does.
func start(t testing.TB) {
	rig.daemon = testrig.Start(t, testrig.Nvidia)
	rig.program = build(t, ".", "./cmd/rtxg-kubernetes", filepath.Join(source(), "../build/kubernetes/rtxg-kubernetes"))
	rig.cluster = startCluster(t)
	makeNamespace(t, namespace, nil)
	makeNode(t, nodeName)
	for _, name := range []string{"plugins", "plugins_registry"} {
		must(t, os.Mkdir(folder(name), 0o700))
	}
	chart := render(t, fmt.Sprintf("plugin: {every: 1s, gpuMemory: 80Gi, socketFolder: %q, cdiFolder: %q, kubeletFolder: %q, metricsFolder: %q}\n"+
		"kai: {enabled: true}\n", rig.daemon.Folder, folder("cdi"), rig.daemon.Folder, folder("metrics")))
	for _, object := range chart {
		if _, err := rig.create(namespace, object); err != nil {
			t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	startWebhook(t)
	startPlugin(t, nil)
}

func makeNamespace(t testing.TB, name string, labels map[string]string) {
	t.Helper()
	_, err := rig.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}},
		metav1.CreateOptions{})
	must(t, err)
	until(t, "the namespace has its account", func() error {
		_, err := rig.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// makeNode is a node on which a kubelet would be ready.
func makeNode(t testing.TB, name string) {
	t.Helper()
	much := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("1000")}
	made, err := rig.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{corev1.LabelHostname: name}}}, metav1.CreateOptions{})
	must(t, err)
	made.Spec.Taints = nil // the API server gives each new node one, until it is ready
	made, err = rig.client.CoreV1().Nodes().Update(ctx, made, metav1.UpdateOptions{})
	must(t, err)
	made.Status = corev1.NodeStatus{Capacity: much, Allocatable: much, Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}}}
	_, err = rig.client.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{})
	must(t, err)
}

// podOf is the chart's pod of this component on the node, which a controller made and the scheduler placed.
func podOf(t testing.TB, component string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	until(t, "pod of the "+component, func() error {
		list, err := rig.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + component})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Spec.NodeName == nodeName {
				pod = &list.Items[i]
				return nil
			}
		}
		return fmt.Errorf("%d pods, none on the node", len(list.Items))
	})
	return pod
}

// startWebhook runs the program of the webhook's pod. Its address and its certificate's place are
// ours, as there is no container.
func startWebhook(t testing.TB) {
	t.Helper()
	pod := podOf(t, "webhook")
	secret, err := rig.client.CoreV1().Secrets(namespace).Get(ctx, pod.Spec.Volumes[0].Secret.SecretName, metav1.GetOptions{})
	must(t, err)
	rig.write(t, "tls.crt", secret.Data["tls.crt"])
	rig.write(t, "tls.key", secret.Data["tls.key"])
	address := net.JoinHostPort(lonely())
	rig.webhook = rig.run(t, "webhook", exec.Command(rig.program, "webhook", "--address="+address,
		"--tls-cert-file="+filepath.Join(rig.folder, "tls.crt"), "--tls-key-file="+filepath.Join(rig.folder, "tls.key")))
	until(t, "the webhook listens", func() error {
		must(t, rig.ended("webhook", rig.webhook))
		connection, err := net.Dial("tcp", address)
		if err == nil {
			connection.Close()
		}
		return err
	})
	rig.cluster.webhook.Store(address)
}

// startPlugin runs the program of the plugin's pod on the node, with the arguments and the account
// that it has in the chart, and waits as a kubelet does until it has registered. With die it kills
// itself before the step of that number.
func startPlugin(t testing.TB, die *int) {
	t.Helper()
	pod := podOf(t, "plugin")
	container := pod.Spec.Containers[0]
	token, err := rig.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}},
		metav1.CreateOptions{})
	must(t, err)
	arguments := append(append(container.Command[1:len(container.Command):len(container.Command)], container.Args...),
		"--kubeconfig="+rig.kubeconfig(t, "plugin.conf", token.Status.Token))
	command := exec.Command(rig.program, arguments...)
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(testrig.Built(t, "cli/rtxg"))+":"+os.Getenv("PATH"))
	for _, variable := range container.Env {
		command.Env = append(command.Env, variable.Name+"="+map[string]string{"spec.nodeName": pod.Spec.NodeName,
			"metadata.uid": string(pod.UID)}[variable.ValueFrom.FieldRef.FieldPath])
	}
	if die != nil {
		command.Path, err = os.Executable()
		must(t, err)
		command.Env = append(command.Env, dieAt+"="+strconv.Itoa(*die))
	}
	rig.plugin = rig.run(outliving, "plugin", command)
	until(t, "the plugin registers", func() error {
		must(t, rig.ended("plugin", rig.plugin))
		return register()
	})
}

func stopPlugin() {
	rig.link.Close()
	kill(rig.plugin)
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// register is the kubelet's plugin watcher.
func register() error {
	sockets, _ := filepath.Glob(folder("plugins_registry/*-reg.sock"))
	if len(sockets) != 1 {
		return fmt.Errorf("%d sockets", len(sockets))
	}
	link, err := dial(sockets[0])
	if err != nil {
		return err
	}
	defer link.Close()
	watcher := registration.NewRegistrationClient(link)
	info, err := watcher.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return err
	}
	if info.Type != registration.DRAPlugin || info.Name != gpus.Driver || !strings.Contains(strings.Join(info.SupportedVersions, " "), "v1.DRAPlugin") {
		return fmt.Errorf("it registers %+v", info)
	}
	if _, err := watcher.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		return err
	}
	rig.link, err = dial(info.Endpoint)
	if err == nil {
		rig.kubelet = drapb.NewDRAPluginClient(rig.link)
	}
	return err
}

// --- pods -----------------------------------------------------------------------------------------

// placed waits until the scheduler has placed the pod.
func placed(t testing.TB, space, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	until(t, "pod "+name+" is placed", func() (err error) {
		pod, err = rig.client.CoreV1().Pods(space).Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName == "" {
			err = errors.New(why(pod))
		}
		return err
	})
	return pod
}

func why(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Message
		}
	}
	return ""
}

// refused waits until the scheduler says why it does not place the pod.
func refused(t testing.TB, space, name string) string {
	t.Helper()
	var message string
	until(t, "pod "+name+" is refused", func() error {
		pod, err := rig.client.CoreV1().Pods(space).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != "" {
			t.Fatalf("pod %s is placed", name)
		}
		if message = why(pod); message == "" {
			return errors.New("nothing is said yet")
		}
		return nil
	})
	return message
}

// claimsOf are the pod's claims, which the controller made of its templates.
func claimsOf(t testing.TB, pod *corev1.Pod) []*resourceapi.ResourceClaim {
	t.Helper()
	var claims []*resourceapi.ResourceClaim
	for _, status := range pod.Status.ResourceClaimStatuses {
		claim, err := rig.client.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, *status.ResourceClaimName, metav1.GetOptions{})
		must(t, err)
		claims = append(claims, claim)
	}
	if len(claims) == 0 {
		t.Fatalf("pod %s has no claim", pod.Name)
	}
	return claims
}

func asked(claims []*resourceapi.ResourceClaim) []*drapb.Claim {
	var all []*drapb.Claim
	for _, c := range claims {
		all = append(all, &drapb.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	return all
}

// tryPrepare is the kubelet before it starts the pod's containers.
func tryPrepare(claims []*resourceapi.ResourceClaim) (*drapb.NodePrepareResourceResponse, error) {
	reply, err := rig.kubelet.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: asked(claims)})
	if err != nil {
		return nil, err
	}
	one := reply.Claims[string(claims[0].UID)]
	if one == nil {
		return nil, errors.New("no answer for the claim")
	}
	if one.Error != "" {
		return nil, errors.New(one.Error)
	}
	return one, nil
}

func tryUnprepare(claims []*resourceapi.ResourceClaim) error {
	reply, err := rig.kubelet.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: asked(claims)})
	if err == nil && reply.Claims[string(claims[0].UID)].GetError() != "" {
		err = errors.New(reply.Claims[string(claims[0].UID)].Error)
	}
	return err
}

// running is a pod that is placed and prepared, and runs for all that the cluster knows.
func running(t testing.TB, space, name string) (*corev1.Pod, *resourceapi.ResourceClaim) {
	t.Helper()
	pod := placed(t, space, name)
	claims := claimsOf(t, pod)
	var answer *drapb.NodePrepareResourceResponse
	var err error
	// A kubelet, too, asks again while a plugin begins.
	until(t, "the plugin answers", func() error {
		answer, err = tryPrepare(claims)
		if grpcstatus.Code(err) == codes.Unavailable {
			return err
		}
		return nil
	})
	must(t, err)
	if len(answer.Devices) == 0 || len(answer.Devices[0].CdiDeviceIds) == 0 {
		t.Errorf("pod %s: %+v", name, answer)
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	_, err = rig.client.CoreV1().Pods(space).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	must(t, err)
	return pod, claims[0]
}

// remove deletes the pod for good, as a kubelet does when its containers have ended.
func remove(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	err := rig.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if !apierrors.IsNotFound(err) {
		must(t, err)
	}
}

// deleted is what a user does, and then the kubelet.
func deleted(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	must(t, rig.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	must(t, tryUnprepare(claimsOf(t, pod)))
	remove(t, pod)
}

// --- what is there ----------------------------------------------------------------------------------

// apply creates objects in a namespace.
func apply(t testing.TB, space string, all ...*unstructured.Unstructured) {
	t.Helper()
	for _, object := range all {
		if _, err := rig.create(space, object); err != nil {
			t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// pick is the object of a kind and a name.
func pick(t testing.TB, all []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range all {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// empty waits until nothing of any claim is left: not in the API server, in rtxgd, in the folder of
// CDI or in the checkpoint.
func empty(t testing.TB) {
	t.Helper()
	until(t, "nothing is left of the claims", func() error {
		list, err := rig.client.ResourceV1().ResourceClaims("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			err = errors.Join(err, fmt.Errorf("claim %s/%s is there", list.Items[i].Namespace, list.Items[i].Name))
		}
		return errors.Join(err, emptyNode(t))
	})
}

// emptyNode says what of claims is left on the node.
func emptyNode(t testing.TB) error {
	t.Helper()
	if names := rig.daemon.Names(); len(names) != 0 {
		return fmt.Errorf("vGPUs %v are there", names)
	}
	if files, _ := filepath.Glob(folder("cdi/*")); len(files) != 0 {
		return fmt.Errorf("files of CDI: %v", files)
	}
	var checkpoint struct{ Claims map[string]json.RawMessage }
	text, err := os.ReadFile(folder("plugins/" + gpus.Driver + "/checkpoint.json"))
	if err == nil {
		err = json.Unmarshal(text, &checkpoint)
	}
	if err == nil && len(checkpoint.Claims) != 0 {
		err = fmt.Errorf("%d claims are in the checkpoint", len(checkpoint.Claims))
	}
	return err
}

// condition waits until the claim says this of its only device, and gives the message.
func condition(t testing.TB, claim *resourceapi.ResourceClaim, kind string, status metav1.ConditionStatus) *metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	until(t, fmt.Sprintf("condition %s is %s", kind, status), func() error {
		now, err := rig.client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(now.Status.Devices) != 1 {
			return fmt.Errorf("%d devices have a status", len(now.Status.Devices))
		}
		found = meta.FindStatusCondition(now.Status.Devices[0].Conditions, kind)
		if found == nil || found.Status != status {
			return fmt.Errorf("%+v", now.Status.Devices[0].Conditions)
		}
		return nil
	})
	return found
}
