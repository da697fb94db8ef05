// SPDX-License-Identifier: MIT

package status

import (
	"context"
	"encoding/json"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"rtxg.io/kubernetes/internal/claims"
	"rtxg.io/kubernetes/internal/gpus"
)

// Writer puts conditions into claims, where they differ from what is there.
type Writer struct {
	Client resourceclient.ResourceV1Interface
}

// data is what status.devices[].data says of a device, for programs.
type data struct {
	VGPU           string `json:"vgpu,omitempty"`
	GPU            string `json:"gpu"`
	ReservationPPM int64  `json:"reservationPPM,omitempty"`
	LimitPPM       int64  `json:"limitPPM,omitempty"`
	Priority       int    `json:"priority,omitempty"`
	LatencyNS      int64  `json:"latencyNS,omitempty"`
	MemoryBytes    int64  `json:"memoryBytes,omitempty"`
}

// Write sets the conditions of the claim's devices; of gives them for one device. A claim that has
// gone, or was replaced by another of its name, is left alone.
func (w *Writer) Write(ctx context.Context, wanted *claims.Wanted, of func(*claims.Device) []metav1.Condition) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim, err := w.Client.ResourceClaims(wanted.Namespace).Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.UID != wanted.UID || claim.Status.Allocation == nil {
			return nil
		}
		changed := false
		for i := range wanted.Devices {
			d := &wanted.Devices[i]
			changed = put(claim, d, details(wanted, d), of(d)) || changed
		}
		if !changed {
			return nil
		}
		_, err = w.Client.ResourceClaims(wanted.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("status of claim %s/%s: %w", wanted.Namespace, wanted.Name, err)
	}
	return nil
}

func details(w *claims.Wanted, d *claims.Device) []byte {
	said := data{GPU: d.GPU}
	if !d.Admin {
		said.VGPU = claims.VGPU(w.UID)
		said.ReservationPPM, said.LimitPPM = w.Settings.MinPPM, w.Settings.MaxPPM
		said.Priority, said.LatencyNS = w.Settings.Priority, w.Settings.Latency.Nanoseconds()
		said.MemoryBytes = w.Settings.Memory
	}
	text, err := json.Marshal(said)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return text
}

// put says whether something changed. What other drivers said of their devices stays.
func put(claim *resourceapi.ResourceClaim, d *claims.Device, details []byte, conditions []metav1.Condition) bool {
	var entry *resourceapi.AllocatedDeviceStatus
	changed := false
	for i := range claim.Status.Devices {
		e := &claim.Status.Devices[i]
		if e.Driver == gpus.Driver && e.Pool == d.Pool && e.Device == d.Device && ptr.Deref(e.ShareID, "") == d.ShareID {
			entry = e
		}
	}
	if entry == nil {
		claim.Status.Devices = append(claim.Status.Devices, resourceapi.AllocatedDeviceStatus{Driver: gpus.Driver, Pool: d.Pool,
			Device: d.Device})
		entry = &claim.Status.Devices[len(claim.Status.Devices)-1]
		if d.ShareID != "" {
			entry.ShareID = ptr.To(d.ShareID)
		}
	}
	if entry.Data == nil {
		entry.Data = &runtime.RawExtension{Raw: details}
		changed = true
	}
	stale := map[string]bool{Managed: true, MemoryLimited: true, PromisesKept: true, Ready: true}
	for _, c := range conditions {
		delete(stale, c.Type)
		changed = meta.SetStatusCondition(&entry.Conditions, c) || changed
	}
	for kind := range stale { // of a vGPU that is not there nothing is known
		changed = meta.RemoveStatusCondition(&entry.Conditions, kind) || changed
	}
	return changed
}
