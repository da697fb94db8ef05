// SPDX-License-Identifier: MIT

// Package status says in the claims themselves whether what was promised is kept: conditions of the
// claim's devices, which "kubectl describe resourceclaim" shows.
//
// May not: change what a claim has.
package status

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"rtxg.io/kubernetes/api/v1alpha1"
	"rtxg.io/kubernetes/internal/claims"
	"rtxg.io/kubernetes/internal/rtxgd"
)

// Conditions of a device of a claim.
const (
	// Ready is true while the claim's vGPU is there.
	Ready = "Ready"
	// Managed is false while a program uses the claim's GPU and is UNMANAGED: promises on that GPU are
	// not safe from it.
	Managed = "Managed"
	// PromisesKept is false where a share, a limit or a bound on latency was not kept lately.
	PromisesKept = "PromisesKept"
	// MemoryLimited is true while the driver keeps the claim's containers to its memory, and false
	// where no driver does. A claim that asks for no memory has no such condition.
	MemoryLimited = "MemoryLimited"
)

// quietRounds is how many rounds without a breach make a broken promise kept again.
const quietRounds = 6

const messageMax = 1024 // the API server accepts 32768; a message is for people

// View is what the daemon says in one round.
type View struct {
	VGPUs   map[string]rtxgd.VGPU
	Using   []rtxgd.Process
	Refused []rtxgd.Process
	Stats   []rtxgd.GPUStats
	Silent  error // the daemon does not answer
	// Unlimited says of vGPUs without a limit on memory that they should have why there is none.
	Unlimited map[string]string
}

// Judge turns views into conditions, and remembers from round to round what was broken.
type Judge struct {
	last  map[string]map[string]int64 // vGPU: promise: how long it was broken
	quiet map[string]int
	what  map[string]string
}

// Conditions of a device of a claim in this round. Without a vGPU (administrator's access) there are
// none of promises.
func (j *Judge) Conditions(w *claims.Wanted, d *claims.Device, view *View) []metav1.Condition {
	if view.Silent != nil {
		return []metav1.Condition{condition(Ready, metav1.ConditionFalse, "NoDaemon", view.Silent.Error())}
	}
	if d.Admin {
		return []metav1.Condition{condition(Ready, metav1.ConditionTrue, "Metrics", "metrics of this node are in "+
			claims.MetricsFolder+"/rtxg.prom of the container")}
	}
	name := claims.VGPU(w.UID)
	vgpu, there := view.VGPUs[name]
	if !there {
		return []metav1.Condition{condition(Ready, metav1.ConditionFalse, "NoVGPU", "vGPU "+name+
			" is not there; it is made again in the next round")}
	}
	said := []metav1.Condition{
		condition(Ready, metav1.ConditionTrue, "Prepared", fmt.Sprintf("vGPU %s on GPU %s: reservation %s, limit %s", name, d.GPU,
			v1alpha1.FormatShare(vgpu.MinPPM), v1alpha1.FormatShare(vgpu.MaxPPM))),
		managed(d, view), j.promises(name, d, view),
	}
	if w.Settings != nil && w.Settings.Memory != 0 {
		said = append(said, memory(&vgpu, w.Settings.Memory, view.Unlimited[name]))
	}
	return said
}

func memory(v *rtxgd.VGPU, wanted int64, unlimited string) metav1.Condition {
	size := resource.NewQuantity(wanted, resource.BinarySI).String()
	if v.MemoryBytes == 0 || v.MemoryLimit == nil {
		if unlimited == "" {
			return condition(MemoryLimited, metav1.ConditionUnknown, "Trying", "a limit of "+size+" is set in the next round")
		}
		return condition(MemoryLimited, metav1.ConditionFalse, "NoMechanism", size+" are counted by the scheduler, and no driver keeps "+
			"the containers to them: "+unlimited)
	}
	why := ": " + v.MemoryLimit.Why
	switch state := v.MemoryLimit.State; {
	case state == rtxgd.MemoryHeld:
		return condition(MemoryLimited, metav1.ConditionTrue, "Held", "each container has at most "+size)
	case state == rtxgd.MemoryTrying:
		return condition(MemoryLimited, metav1.ConditionUnknown, "Trying", "limit of "+size+why)
	case state == rtxgd.MemoryWaiting || len(v.Cgroups) == 0: // a driver limits cgroups
		return condition(MemoryLimited, metav1.ConditionUnknown, "NoContainer", "no container runs that could be kept to "+size+why)
	}
	return condition(MemoryLimited, metav1.ConditionFalse, "Refused", "the containers are not kept to "+size+why)
}

func managed(d *claims.Device, view *View) metav1.Condition {
	var said []string
	for _, p := range view.Using {
		if p.Managed == nil || *p.Managed || (p.GPU != nil && *p.GPU != d.GPU) {
			continue
		}
		said = append(said, fmt.Sprintf("process %d (%s) is UNMANAGED: %s", p.PID, p.Comm, p.Remedy))
	}
	if len(said) > 0 {
		return condition(Managed, metav1.ConditionFalse, "UnmanagedPrograms", joined(said))
	}
	for _, p := range view.Refused {
		said = append(said, fmt.Sprintf("process %d (%s) was refused: %s", p.PID, p.Comm, p.Message))
	}
	if len(said) > 0 {
		return condition(Managed, metav1.ConditionFalse, "RefusedPrograms", joined(said))
	}
	return condition(Managed, metav1.ConditionTrue, "AllManaged", "every program on GPU "+d.GPU+" is in a vGPU")
}

func (j *Judge) promises(name string, d *claims.Device, view *View) metav1.Condition {
	if j.last == nil {
		j.last, j.quiet, j.what = map[string]map[string]int64{}, map[string]int{}, map[string]string{}
	}
	for _, gpu := range view.Stats {
		if gpu.GPU != d.GPU {
			continue
		}
		for _, v := range gpu.VGPUs {
			if v.VGPU == name {
				j.note(name, &v)
			}
		}
	}
	if what := j.what[name]; what != "" {
		return condition(PromisesKept, metav1.ConditionFalse, "Broken", what)
	}
	return condition(PromisesKept, metav1.ConditionTrue, "Kept", "no promise was broken lately")
}

// note compares how long each promise was broken with the round before. A daemon that started again
// counts from zero.
func (j *Judge) note(name string, v *rtxgd.VGPUOnGPU) {
	var grown []string
	before, known := j.last[name]
	for promise, ns := range v.BrokenNS {
		if slices.Contains(v.Broken, promise) || (known && ns > before[promise]) {
			grown = append(grown, promise)
		}
	}
	j.last[name] = v.BrokenNS
	slices.Sort(grown)
	switch {
	case len(grown) > 0:
		j.what[name], j.quiet[name] = "broken: "+strings.Join(grown, ", "), 0
		if v.BrokenBy != nil {
			j.what[name] += fmt.Sprintf(", most likely by process %d", *v.BrokenBy)
		}
		j.what[name] += "; \"rtxg top\" and \"rtxg doctor\" on the node say more"
	case j.quiet[name] < quietRounds:
		j.quiet[name]++
	default:
		j.what[name] = ""
	}
}

// Forget drops what is known of claims that have ended.
func (j *Judge) Forget(known map[string]bool) {
	for name := range j.last {
		if !known[name] {
			delete(j.last, name)
			delete(j.quiet, name)
			delete(j.what, name)
		}
	}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	if len(message) > messageMax {
		message = strings.ToValidUTF8(message[:messageMax], "") + "..."
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func joined(said []string) string {
	const most = 4
	if len(said) > most {
		said = append(said[:most:most], fmt.Sprintf("and %d more", len(said)-most))
	}
	return strings.Join(said, "; ")
}
