// SPDX-License-Identifier: MIT

// Package charttest renders the Helm chart with Helm's own engine, and reads what comes out as the
// API server would: strictly, by the types of each object.
package charttest

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const chart = "../chart"

func types(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admission.AddToScheme, apps.AddToScheme, core.AddToScheme, rbac.AddToScheme,
		resourceapi.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// render gives the chart's objects by kind and name.
func render(t *testing.T, values string) (map[string]runtime.Object, error) {
	t.Helper()
	c, err := loader.Load(chart)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	given := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "rtxg", Namespace: "gpu-system", IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	objects := map[string]runtime.Object{}
	for file, text := range texts {
		if path.Ext(file) == ".tpl" {
			continue
		}
		for _, one := range documents(t, text) {
			loose := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(one, &loose.Object); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, one)
			}
			if loose.Object == nil {
				continue
			}
			name := loose.GetKind() + " " + loose.GetName()
			if _, twice := objects[name]; twice {
				t.Errorf("%s is there twice", name)
			}
			if loose.GetLabels()["app.kubernetes.io/instance"] != "rtxg" {
				t.Errorf("%s has no labels of the release", name)
			}
			if strings.HasPrefix(loose.GetAPIVersion(), "cert-manager.io/") {
				objects[name] = loose
				continue
			}
			object, _, err := types(t).Decode(one, nil, nil)
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, one)
			}
			objects[name] = object
		}
	}
	return objects, nil
}

func documents(t *testing.T, text string) [][]byte {
	t.Helper()
	var all [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		one, err := reader.Read()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
}

func must(t *testing.T, values string) map[string]runtime.Object {
	t.Helper()
	objects, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestTheDefaultsGiveWhatAClusterNeeds(t *testing.T) {
	objects := must(t, "")
	for _, name := range []string{"DeviceClass gpu.rtxg.io", "DeviceClass gpu-metrics.rtxg.io", "ServiceAccount rtxg", "ClusterRole rtxg",
		"ClusterRoleBinding rtxg", "ValidatingAdmissionPolicy rtxg-slices", "ValidatingAdmissionPolicyBinding rtxg-slices",
		"DaemonSet rtxg-plugin", "Deployment rtxg-webhook", "Service rtxg-webhook", "Secret rtxg-webhook-cert",
		"ValidatingWebhookConfiguration rtxg-webhook"} {
		if objects[name] == nil {
			t.Errorf("%s is not there", name)
		}
		delete(objects, name)
	}
	for name := range objects {
		t.Errorf("%s is there, and no test knows it", name)
	}
}

func TestTheWebhookIsAskedForClaimsOfThisDriverOnly(t *testing.T) {
	objects := must(t, "")
	config := objects["ValidatingWebhookConfiguration rtxg-webhook"].(*admission.ValidatingWebhookConfiguration)
	secret := objects["Secret rtxg-webhook-cert"].(*core.Secret)
	if len(config.Webhooks) != 3 {
		t.Fatal(len(config.Webhooks))
	}
	for _, w := range config.Webhooks {
		if !bytes.Equal(w.ClientConfig.CABundle, secret.Data["tls.crt"]) || w.ClientConfig.Service.Name != "rtxg-webhook" ||
			*w.ClientConfig.Service.Path != "/validate" || *w.FailurePolicy != admission.Fail || *w.MatchPolicy != admission.Equivalent {
			t.Errorf("%+v", w)
		}
		if len(w.MatchConditions) != 1 || !strings.Contains(w.MatchConditions[0].Expression, "c.opaque.driver == 'gpu.rtxg.io'") {
			t.Errorf("%+v", w.MatchConditions)
		}
	}
	if objects := must(t, "webhook: {enabled: false}"); objects["Deployment rtxg-webhook"] != nil || objects["Secret rtxg-webhook-cert"] != nil {
		t.Error("a webhook that is off is there")
	}
	objects = must(t, "webhook: {tls: {from: cert-manager}}")
	if objects["Certificate rtxg-webhook"] == nil || objects["Issuer rtxg-webhook"] == nil || objects["Secret rtxg-webhook-cert"] != nil {
		t.Error("cert-manager makes the certificate")
	}
	bundle := base64.StdEncoding.EncodeToString([]byte("authority"))
	objects = must(t, "webhook: {tls: {from: secret, secretName: mine, caBundle: "+bundle+"}}")
	mounted := objects["Deployment rtxg-webhook"].(*apps.Deployment).Spec.Template.Spec.Volumes[0].Secret.SecretName
	if mounted != "mine" {
		t.Error(mounted)
	}
}

func TestThePluginSeesTheNodeAtTheSamePaths(t *testing.T) {
	set := must(t, "plugin: {kubeletFolder: /data/kubelet, socketFolder: /run/x}")["DaemonSet rtxg-plugin"].(*apps.DaemonSet)
	pod := set.Spec.Template.Spec
	paths := map[string]string{}
	for _, v := range pod.Volumes {
		paths[v.Name] = v.HostPath.Path
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if paths[m.Name] != m.MountPath {
			t.Errorf("%s is %s on the node and %s in the container", m.Name, paths[m.Name], m.MountPath)
		}
		delete(paths, m.Name)
	}
	if len(paths) != 0 {
		t.Errorf("not mounted: %v", paths)
	}
	arguments := strings.Join(pod.Containers[0].Args, " ")
	for _, word := range []string{"--socket=/run/x/rtxgd.sock", "--plugins-folder=/data/kubelet/plugins ", "--registry-folder=/data/kubelet/plugins_registry"} {
		if !strings.Contains(arguments, word) {
			t.Errorf("%s: %s", word, arguments)
		}
	}
	if strings.Contains(arguments, "--kai") {
		t.Error("KAI is on by default")
	}
}

// The plugin's program must know the options that the chart gives to it.
func TestEachOptionOfTheChartIsOneOfTheProgram(t *testing.T) {
	source, err := os.ReadFile("../internal/command/command.go")
	if err != nil {
		t.Fatal(err)
	}
	objects := must(t, "kai: {enabled: true}")
	arguments := append(objects["DaemonSet rtxg-plugin"].(*apps.DaemonSet).Spec.Template.Spec.Containers[0].Args,
		objects["Deployment rtxg-webhook"].(*apps.Deployment).Spec.Template.Spec.Containers[0].Args...)
	for _, argument := range arguments {
		name, _, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		if !bytes.Contains(source, []byte(fmt.Sprintf("(%q, ", name))) && name != "v" {
			t.Errorf("--%s is no option", name)
		}
	}
}

func TestRightsAreNoMoreThanNeeded(t *testing.T) {
	verbs := func(values string) map[string]string {
		said := map[string]string{}
		for _, rule := range must(t, values)["ClusterRole rtxg"].(*rbac.ClusterRole).Rules {
			for _, r := range rule.Resources {
				said[r] = strings.Join(rule.Verbs, " ")
			}
		}
		return said
	}
	plain, kai := verbs(""), verbs("kai: {enabled: true}")
	for r, v := range map[string]string{"resourceclaims": "get", "resourceclaims/status": "update", "nodes": "get",
		"resourceclaims/driver": "associated-node:update"} {
		if plain[r] != v {
			t.Errorf("%s: %s", r, plain[r])
		}
	}
	if plain["pods"] != "" || plain["configmaps"] != "" || kai["pods"] != "list" || kai["configmaps"] != "get" {
		t.Errorf("%v, %v", plain, kai)
	}
}

func TestParametersOfTheClassAreWritten(t *testing.T) {
	class := must(t, `deviceClass: {config: {priority: 10, limit: "80%"}}`)["DeviceClass gpu.rtxg.io"].(*resourceapi.DeviceClass)
	raw := string(class.Spec.Config[0].Opaque.Parameters.Raw)
	for _, word := range []string{`"apiVersion":"gpu.rtxg.io/v1alpha1"`, `"kind":"VGPUConfig"`, `"priority":10`, `"limit":"80%"`} {
		if !strings.Contains(raw, word) {
			t.Errorf("%s: %s", word, raw)
		}
	}
}

func TestValuesThatCannotBeRightAreRefused(t *testing.T) {
	for values, says := range map[string]string{
		"plugin: {lever: nvidia}":                   "lever",
		"plugin: {levers: amd}":                     "levers",
		"plugin: {socketFolder: run}":               "socketFolder",
		"webhook: {failurePolicy: Maybe}":           "failurePolicy",
		"webhook: {tls: {from: secret}}":            "caBundle",
		"deviceClass: {config: {priority: 100}}":    "priority",
		"deviceClass: {config: {reservations: 1%}}": "reservations",
		"kai: {cgroupDriver: v1}":                   "cgroupDriver",
		"plugins: {}":                               "plugins",
	} {
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func TestExamplesAreObjectsThatAnAPIServerKnows(t *testing.T) {
	files, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range documents(t, string(text)) {
			if _, _, err := types(t).Decode(one, nil, nil); err != nil {
				t.Errorf("%s: %v\n%s", file, err, one)
			}
		}
	}
}
