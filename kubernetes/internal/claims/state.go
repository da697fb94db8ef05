// SPDX-License-Identifier: MIT

package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"rtxg.io/kubernetes/api/v1alpha1"
	"rtxg.io/kubernetes/internal/rtxgd"
)

// State is what is prepared on this node. All of it is on disk and in rtxgd: between two calls the
// object remembers nothing.
type State struct {
	Daemon *rtxgd.Client
	CDI    *CDI
	Folder string // of the checkpoint
	Log    logr.Logger
	// Step is called before each step that changes something, with its name. Tests die there.
	Step func(name string)

	mutex sync.Mutex
}

func (s *State) step(name string) {
	if s.Step != nil {
		s.Step(name)
	}
}

// Prepare makes the claim's vGPU and its CDI specification, or finds that they are there.
func (s *State) Prepare(ctx context.Context, w *Wanted) error {
	known, unlock, err := s.lockAndLoad()
	if err != nil {
		return err
	}
	defer unlock()
	if entry := known[w.UID]; entry != nil && !same(&entry.Wanted, w) {
		// The claim was given back and allocated again, and the kubelet's request in between is lost.
		if err := s.undo(ctx, known, w.UID); err != nil {
			return err
		}
	}
	entry := known[w.UID]
	if entry == nil || entry.Phase != Prepared {
		known[w.UID] = &Entry{Phase: Preparing, Wanted: *w}
		s.step("note the claim")
		if err := s.save(known); err != nil {
			return err
		}
	}
	if err := s.ensure(ctx, w); err != nil {
		// A refused claim leaves nothing behind; the kubelet asks again.
		if entry == nil {
			err = errors.Join(err, s.undo(ctx, known, w.UID))
		}
		return err
	}
	if entry != nil && entry.Phase == Prepared && (w.Settings == nil || *entry.Wanted.Settings == *w.Settings) {
		return nil
	}
	known[w.UID] = &Entry{Phase: Prepared, Wanted: *w}
	s.step("note that it is prepared")
	return s.save(known)
}

// Unprepare takes both away. A claim that is not known is no error.
func (s *State) Unprepare(ctx context.Context, uid types.UID) error {
	if err := validUID(uid); err != nil {
		return err
	}
	known, unlock, err := s.lockAndLoad()
	if err != nil {
		return err
	}
	defer unlock()
	if known[uid] == nil {
		// Nothing, unless a checkpoint was lost: names follow from the UID.
		if err := s.CDI.Remove(uid); err != nil {
			return err
		}
		if err := s.Daemon.RemoveVGPU(ctx, VGPU(uid)); err != nil && !errors.Is(err, rtxgd.ErrNoDaemon) {
			return err
		}
		return nil
	}
	if known[uid].Phase != Unpreparing {
		known[uid].Phase = Unpreparing
		s.step("note that it goes")
		if err := s.save(known); err != nil {
			return err
		}
	}
	return s.undo(ctx, known, uid)
}

func (s *State) undo(ctx context.Context, known map[types.UID]*Entry, uid types.UID) error {
	s.step("remove the CDI file")
	if err := s.CDI.Remove(uid); err != nil {
		return err
	}
	s.step("remove the vGPU")
	if err := s.Daemon.RemoveVGPU(ctx, VGPU(uid)); err != nil {
		return err
	}
	delete(known, uid)
	s.step("forget the claim")
	return s.save(known)
}

func (s *State) ensure(ctx context.Context, w *Wanted) error {
	if w.GPU() != nil {
		s.step("make the vGPU")
		if _, err := s.ensureVGPU(ctx, w); err != nil {
			return err
		}
	}
	s.step("write the CDI file")
	return s.CDI.Write(w)
}

// ensureVGPU makes the claim's vGPU as it is to be. Where memory cannot be limited, unlimited says why:
// the claim is prepared all the same, as the scheduler counts memory, and its condition says so.
func (s *State) ensureVGPU(ctx context.Context, w *Wanted) (unlimited string, err error) {
	name, gpu := VGPU(w.UID), w.GPU().GPU
	there, err := s.Daemon.VGPU(ctx, name)
	if err != nil {
		return "", err
	}
	if there != nil && (there.GPU == nil || *there.GPU != gpu) {
		if err := s.Daemon.RemoveVGPU(ctx, name); err != nil {
			return "", err
		}
		there = nil
	}
	wanted := Members(name, w.Settings)
	if there == nil {
		wanted["gpu"] = gpu
		err = s.Daemon.CreateVGPU(ctx, wanted)
	} else if !fits(there, w.Settings) {
		if w.Settings.Latency == 0 {
			wanted["latency_ns"] = nil
		}
		err = s.Daemon.SetVGPU(ctx, wanted)
	}
	if err != nil {
		return "", explain(err, gpu, w.Settings)
	}
	return s.limitMemory(ctx, name, there, w.Settings.Memory)
}

func (s *State) limitMemory(ctx context.Context, name string, there *rtxgd.VGPU, bytes int64) (unlimited string, err error) {
	if (there == nil && bytes == 0) || (there != nil && there.MemoryBytes == bytes) {
		return "", nil
	}
	s.step("limit its memory")
	wanted := map[string]any{"vgpu": name, "memory_bytes": bytes}
	if bytes == 0 {
		wanted["memory_bytes"] = nil
	}
	if err = s.Daemon.SetVGPU(ctx, wanted); errors.Is(err, syscall.ENOTSUP) {
		return err.Error(), nil
	}
	return "", err
}

// Members are a vGPU's parameters as the protocol has them.
func Members(name string, s *v1alpha1.Settings) map[string]any {
	m := map[string]any{"vgpu": name, "min_ppm": s.MinPPM, "max_ppm": s.MaxPPM, "priority": s.Priority}
	if s.Latency != 0 {
		m["latency_ns"] = s.Latency.Nanoseconds()
	}
	return m
}

func fits(v *rtxgd.VGPU, s *v1alpha1.Settings) bool {
	return v.MinPPM == s.MinPPM && v.MaxPPM == s.MaxPPM && v.Priority == s.Priority && v.LatencyNS == s.Latency.Nanoseconds()
}

// explain adds what can be done in the cluster to what rtxgd says of the node.
func explain(err error, gpu string, s *v1alpha1.Settings) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("rtxgd refuses to reserve %s of GPU %s: %w; ask for a smaller share, or free what vGPUs of the node itself "+
			"reserve (\"rtxg vgpu ls\" on the node)", v1alpha1.FormatShare(s.MinPPM), gpu, err)
	case errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ERANGE), errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("rtxgd refuses a latency of %s on GPU %s: %w; leave latency out, or select a GPU on which it can be kept "+
			"(attribute latency)", s.Latency, gpu, err)
	}
	return err
}

func same(a, b *Wanted) bool {
	equal := func(x, y Device) bool {
		return x.Request == y.Request && x.Pool == y.Pool && x.Device == y.Device && x.ShareID == y.ShareID && x.Admin == y.Admin
	}
	if (a.Settings == nil) != (b.Settings == nil) {
		return false
	}
	if a.Settings != nil {
		// An earlier version did not note the memory of a claim that still runs.
		x, y := *a.Settings, *b.Settings
		if x.Memory = y.Memory; x != y {
			return false
		}
	}
	return slices.EqualFunc(a.Devices, b.Devices, equal)
}

// Known is a copy of the checkpoint.
func (s *State) Known() (map[types.UID]*Entry, error) {
	known, unlock, err := s.lockAndLoad()
	if err != nil {
		return nil, err
	}
	unlock()
	return known, nil
}

// Restore makes what prepared claims have lost, by a reboot of the node or a daemon that forgot.
// unlimited says of vGPUs whose memory cannot be limited why.
func (s *State) Restore(ctx context.Context) (unlimited map[string]string, err error) {
	known, unlock, err := s.lockAndLoad()
	if err != nil {
		return nil, err
	}
	defer unlock()
	unlimited = map[string]string{}
	var failed []error
	for uid, entry := range known {
		if entry.Phase != Prepared {
			continue // the kubelet asks again
		}
		if entry.Wanted.GPU() != nil {
			why, err := s.ensureVGPU(ctx, &entry.Wanted)
			if why != "" {
				unlimited[VGPU(uid)] = why
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("claim %s/%s: %w", entry.Wanted.Namespace, entry.Wanted.Name, err))
			}
		}
		if !s.CDI.There(uid) {
			failed = append(failed, s.CDI.Write(&entry.Wanted))
		}
	}
	return unlimited, errors.Join(failed...)
}
