// SPDX-License-Identifier: MIT

package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionapi "k8s.io/api/admission/v1"
)

const good = `{"apiVersion": "gpu.rtxg.io/v1alpha1", "kind": "VGPUConfig", "reservation": "60%"}`

func spec(driver, parameters, share, more string) string {
	return fmt.Sprintf(`{"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.rtxg.io", "capacity": {"requests":
		{"share": %q}} %s}}], "config": [{"requests": ["gpu"], "opaque": {"driver": %q, "parameters": %s}}]}}`, share, more, driver, parameters)
}

func ask(t *testing.T, resource, object string) *admissionapi.AdmissionResponse {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "resource":
		{"group": "resource.k8s.io", "version": "v1", "resource": %q}, "object": %s}}`, resource, object)
	status, text := post(body)
	var review admissionapi.AdmissionReview
	if status != http.StatusOK || json.Unmarshal(text, &review) != nil || review.Response == nil || review.Response.UID != "u" {
		t.Fatalf("%d %s", status, text)
	}
	return review.Response
}

func post(body string) (int, []byte) {
	recorder := httptest.NewRecorder()
	Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body)))
	return recorder.Code, bytes.TrimSpace(recorder.Body.Bytes())
}

func TestClaimsTemplatesAndClassesAreJudgedAlike(t *testing.T) {
	wrap := map[string]string{
		"resourceclaims":         `{"spec": %s}`,
		"resourceclaimtemplates": `{"spec": {"spec": %s}}`,
	}
	for resource, form := range wrap {
		for _, c := range []struct{ driver, parameters, share, more, says string }{
			{"gpu.rtxg.io", good, "60", "", ""},
			{"gpu.rtxg.io", good, "50", "", "share: 60"},
			{"gpu.example.com", `{"anything": 1}`, "50", "", ""}, // another driver's
			{"gpu.rtxg.io", `{"apiVersion": "gpu.rtxg.io/v1alpha1", "kind": "VGPUConfig", "limits": "1%"}`, "60", "", "limits"},
			{"gpu.rtxg.io", `{}`, "60", "", "apiVersion"},
			{"gpu.rtxg.io", good, "60", `, "count": 2`, "2 GPUs"},
			{"gpu.rtxg.io", good, "60", `, "count": 2, "adminAccess": true`, ""},
		} {
			response := ask(t, resource, fmt.Sprintf(form, spec(c.driver, c.parameters, c.share, c.more)))
			if response.Allowed != (c.says == "") {
				t.Errorf("%s %+v: %+v", resource, c, response)
			} else if c.says != "" && (!strings.Contains(response.Result.Message, c.says) || !strings.Contains(response.Result.Message, "devices.")) {
				t.Errorf("%s %+v: %s", resource, c, response.Result.Message)
			}
		}
	}
	class := `{"spec": {"config": [{"opaque": {"driver": "gpu.rtxg.io", "parameters": {"apiVersion": "gpu.rtxg.io/v1alpha1", "kind":
		"VGPUConfig", "priority": %d}}}]}}`
	if response := ask(t, "deviceclasses", fmt.Sprintf(class, 50)); !response.Allowed {
		t.Error(response.Result.Message)
	}
	if response := ask(t, "deviceclasses", fmt.Sprintf(class, 500)); response.Allowed || !strings.Contains(response.Result.Message, "500") {
		t.Errorf("%+v", response)
	}
}

func TestEachAlternativeIsCompared(t *testing.T) {
	text := `{"spec": {"devices": {"requests": [{"name": "gpu", "firstAvailable": [
		{"name": "big", "deviceClassName": "gpu.rtxg.io", "capacity": {"requests": {"share": "80"}}},
		{"name": "small", "deviceClassName": "gpu.rtxg.io", "capacity": {"requests": {"share": "20"}}}]}],
		"config": [{"requests": [WHICH], "opaque": {"driver": "gpu.rtxg.io", "parameters": ` + good + `}}]}}}`
	for requests, allowed := range map[string]bool{`"gpu/big"`: true, `"gpu/small"`: false, `"gpu"`: false, ``: false} {
		if response := ask(t, "resourceclaims", strings.Replace(text, "WHICH", requests, 1)); response.Allowed != allowed {
			t.Errorf("%s: %+v", requests, response)
		}
	}
}

func TestWhatIsNoReviewIsRefused(t *testing.T) {
	for body, status := range map[string]int{
		"": http.StatusBadRequest, "{": http.StatusBadRequest, "{}": http.StatusBadRequest, "[]": http.StatusBadRequest,
		`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}`:                     http.StatusBadRequest,
		`{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {}}`: http.StatusBadRequest,
		strings.Repeat(" ", bodyMax+1): http.StatusRequestEntityTooLarge,
	} {
		if got, text := post(body); got != status {
			t.Errorf("%.60s: %d %s", body, got, text)
		}
	}
	for resource, object := range map[string]string{"pods": "{}", "resourceclaims": `"x"`, "resourceclaimtemplates": `[]`, "deviceclasses": `7`} {
		if response := ask(t, resource, object); response.Allowed {
			t.Errorf("%s %s is allowed", resource, object)
		}
	}
	recorder := httptest.NewRecorder()
	Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, Path, nil))
	if recorder.Code != http.StatusMethodNotAllowed {
		t.Error(recorder.Code)
	}
}
