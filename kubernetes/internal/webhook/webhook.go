// SPDX-License-Identifier: MIT

// Package webhook refuses claims, claim templates and device classes whose parameters for driver
// gpu.rtxg.io cannot be right, when they are written and not only when a pod starts.
//
// May not: change an object. It sees no allocation, so it does not know what will be free.
package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	admissionapi "k8s.io/api/admission/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"rtxg.io/kubernetes/api/v1alpha1"
	"rtxg.io/kubernetes/internal/gpus"
)

const (
	// Path of the webhook; Ready answers when it can be asked.
	Path, Ready = "/validate", "/readyz"

	bodyMax = 4 << 20
)

// Handler answers admission reviews.
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Ready, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("POST "+Path, serve)
	return mux
}

func serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
	if err != nil {
		http.Error(w, fmt.Sprintf("the body cannot be read: %v; at most %d bytes are accepted", err, bodyMax), http.StatusRequestEntityTooLarge)
		return
	}
	var review admissionapi.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		http.Error(w, fmt.Sprintf("the body is no AdmissionReview: %v", err), http.StatusBadRequest)
		return
	}
	if review.APIVersion != "admission.k8s.io/v1" || review.Kind != "AdmissionReview" || review.Request == nil {
		http.Error(w, fmt.Sprintf("the body is %q of %q; an AdmissionReview of admission.k8s.io/v1 with a request is accepted",
			review.Kind, review.APIVersion), http.StatusBadRequest)
		return
	}
	response := &admissionapi.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if err := Validate(review.Request); err != nil {
		response.Allowed = false
		response.Result = &metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Reason: metav1.StatusReasonInvalid,
			Code: http.StatusUnprocessableEntity}
	}
	answer := admissionapi.AdmissionReview{TypeMeta: review.TypeMeta, Response: response}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		klog.Background().Error(err, "Answer cannot be sent")
	}
}

// Validate says why an object is refused.
func Validate(request *admissionapi.AdmissionRequest) error {
	if request.Resource.Group != resourceapi.GroupName || request.Resource.Version != "v1" {
		return fmt.Errorf("%s of %s/%s is asked about; v1 of %s is accepted (matchPolicy: Equivalent)", request.Resource.Resource,
			request.Resource.Group, request.Resource.Version, resourceapi.GroupName)
	}
	switch request.Resource.Resource {
	case "resourceclaims":
		var claim resourceapi.ResourceClaim
		if err := json.Unmarshal(request.Object.Raw, &claim); err != nil {
			return fmt.Errorf("the claim cannot be read: %w", err)
		}
		return validateClaim("spec", &claim.Spec)
	case "resourceclaimtemplates":
		var template resourceapi.ResourceClaimTemplate
		if err := json.Unmarshal(request.Object.Raw, &template); err != nil {
			return fmt.Errorf("the claim template cannot be read: %w", err)
		}
		return validateClaim("spec.spec", &template.Spec.Spec)
	case "deviceclasses":
		var class resourceapi.DeviceClass
		if err := json.Unmarshal(request.Object.Raw, &class); err != nil {
			return fmt.Errorf("the device class cannot be read: %w", err)
		}
		var wrong []error
		for i := range class.Spec.Config {
			wrong = append(wrong, validate(fmt.Sprintf("spec.config[%d]", i), class.Spec.Config[i].Opaque, -1))
		}
		return errors.Join(wrong...)
	}
	return fmt.Errorf("%s is asked about; resourceclaims, resourceclaimtemplates and deviceclasses are accepted",
		request.Resource.Resource)
}

func validateClaim(path string, spec *resourceapi.ResourceClaimSpec) error {
	var wrong []error
	for i := range spec.Devices.Config {
		config := &spec.Devices.Config[i]
		field := fmt.Sprintf("%s.devices.config[%d]", path, i)
		asked := requested(spec, config.Requests)
		if len(asked) == 0 {
			asked = []int64{-1}
		}
		for _, share := range asked {
			if err := validate(field, config.Opaque, share); err != nil {
				wrong = append(wrong, err)
				break
			}
		}
	}
	for i := range spec.Devices.Requests {
		if exactly := spec.Devices.Requests[i].Exactly; exactly != nil && ours(spec, spec.Devices.Requests[i].Name) &&
			exactly.Count > 1 && (exactly.AdminAccess == nil || !*exactly.AdminAccess) {
			wrong = append(wrong, fmt.Errorf("%s.devices.requests[%d].exactly.count: %d GPUs are asked for, and a container is in one "+
				"vGPU; ask for one GPU in each claim", path, i, exactly.Count))
		}
	}
	return errors.Join(wrong...)
}

// ours says whether a configuration of this driver is for the request; of others the device class
// alone knows whose they are.
func ours(spec *resourceapi.ResourceClaimSpec, request string) bool {
	for i := range spec.Devices.Config {
		config := &spec.Devices.Config[i]
		if config.Opaque != nil && config.Opaque.Driver == gpus.Driver && matches(config.Requests, request) {
			return true
		}
	}
	return false
}

// requested are the shares that the requests ask for to which a configuration applies.
func requested(spec *resourceapi.ResourceClaimSpec, names []string) []int64 {
	var shares []int64
	add := func(capacity *resourceapi.CapacityRequirements) {
		if capacity == nil {
			return
		}
		if quantity, ok := capacity.Requests[gpus.Share]; ok {
			shares = append(shares, quantity.Value()*gpus.PPMPerShare)
		}
	}
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if request.Exactly != nil && matches(names, request.Name) {
			add(request.Exactly.Capacity)
		}
		for j := range request.FirstAvailable {
			sub := &request.FirstAvailable[j]
			if matches(names, request.Name) || matches(names, request.Name+"/"+sub.Name) {
				add(sub.Capacity)
			}
		}
	}
	return shares
}

func matches(names []string, request string) bool {
	for _, name := range names {
		if name == request {
			return true
		}
	}
	return len(names) == 0
}

func validate(field string, opaque *resourceapi.OpaqueDeviceConfiguration, share int64) error {
	if opaque == nil || opaque.Driver != gpus.Driver {
		return nil
	}
	config, err := v1alpha1.Decode(opaque.Parameters.Raw)
	if err == nil {
		_, err = v1alpha1.Resolve(config, share)
	}
	if err != nil {
		return fmt.Errorf("%s.opaque.parameters: %w", field, err)
	}
	return nil
}
