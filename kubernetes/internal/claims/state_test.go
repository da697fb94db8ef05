// SPDX-License-Identifier: MIT

package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"rtxg.io/kubernetes/api/v1alpha1"
	"rtxg.io/kubernetes/internal/rtxgd"
	"rtxg.io/kubernetes/internal/testrig"
)

const uid = types.UID("0a1b2c3d-1111-2222-3333-444455556666")

var ctx = context.Background()

func newState(socket, folder string) *State {
	return &State{Daemon: &rtxgd.Client{Socket: socket}, Folder: folder, Log: logr.Discard(), CDI: &CDI{Folder: filepath.Join(folder, "cdi"),
		Hook: "/usr/libexec/rtxg/rtxg-cdi-hook", Socket: socket, Metrics: filepath.Join(folder, "metrics"), GPUKind: "nvidia.com/gpu"}}
}

func claim(percent int64) *Wanted {
	return &Wanted{UID: uid, Namespace: "ns", Name: "claim",
		Devices:  []Device{{Request: "gpu", Pool: node, Device: "nvidia0", ShareID: "s", GPU: "nvidia0", UUID: "GPU-1", Lever: "nvidia"}},
		Settings: &v1alpha1.Settings{MinPPM: percent * 10000, MaxPPM: v1alpha1.PPM, Priority: 1}}
}

// rig is a daemon with the fake GPU, and a state beside it.
func rig(t *testing.T) (*testrig.Daemon, *State) {
	d := testrig.Start(t, testrig.Nvidia)
	return d, newState(d.Socket, d.Folder)
}

// complete checks that the claim is prepared, once, as it asks for.
func complete(t *testing.T, d *testrig.Daemon, s *State, w *Wanted) {
	t.Helper()
	v, err := d.VGPU(ctx, VGPU(w.UID))
	if err != nil || v == nil || v.MinPPM != w.Settings.MinPPM || v.MaxPPM != w.Settings.MaxPPM || v.Priority != w.Settings.Priority ||
		v.LatencyNS != w.Settings.Latency.Nanoseconds() || v.GPU == nil || *v.GPU != w.GPU().GPU {
		t.Errorf("vGPU: %+v, %v", v, err)
	}
	if names := d.Names(); len(names) != 1 {
		t.Errorf("vGPUs: %v", names)
	}
	known, err := s.Known()
	if err != nil || len(known) != 1 || known[w.UID] == nil || known[w.UID].Phase != Prepared || !same(&known[w.UID].Wanted, w) ||
		*known[w.UID].Wanted.Settings != *w.Settings {
		t.Errorf("checkpoint: %+v, %v", known, err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(s.CDI.Folder), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	id := "rtxg.io/claim=" + string(w.UID)
	device := cache.GetDevice(id)
	if device == nil || len(cache.GetErrors()) != 0 || len(cache.ListDevices()) != 1 {
		t.Fatalf("CDI: %v, %v", cache.ListDevices(), cache.GetErrors())
	}
	hook := device.ContainerEdits.Hooks[0]
	if hook.HookName != "createRuntime" || strings.Join(hook.Args, " ") != "rtxg-cdi-hook --vgpu k8s-"+string(w.UID) ||
		hook.Env[0] != "RTXG_SOCKET="+d.Socket {
		t.Errorf("CDI: %+v", hook)
	}
	if ids := s.CDI.IDs(w.UID, w.GPU()); strings.Join(ids, " ") != "nvidia.com/gpu=GPU-1 "+id {
		t.Errorf("CDI: %v", ids)
	}
}

// gone checks that nothing of any claim is there.
func gone(t *testing.T, d *testrig.Daemon, s *State) {
	t.Helper()
	if names := d.Names(); len(names) != 0 {
		t.Errorf("vGPUs: %v", names)
	}
	if known, err := s.Known(); err != nil || len(known) != 0 {
		t.Errorf("checkpoint: %+v, %v", known, err)
	}
	if files, _ := filepath.Glob(filepath.Join(s.CDI.Folder, "*")); len(files) != 0 {
		t.Errorf("CDI: %v", files)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func restore(t *testing.T, s *State) {
	t.Helper()
	if unlimited, err := s.Restore(ctx); err != nil || len(unlimited) != 0 {
		t.Fatal(unlimited, err)
	}
}

func TestTheMemoryOfAClaimIsTheLimitOfItsContainers(t *testing.T) {
	d, s := rig(t)
	w := claim(60)
	must(t, s.Prepare(ctx, w)) // as an earlier version did
	d.Cgroup("/pod", VGPU(uid))
	w.Settings.Memory = 20 << 30
	for range 2 {
		must(t, s.Prepare(ctx, w))
		complete(t, d, s, w)
		restore(t, s)
		testrig.Wait(t, "the limit is kept", func() bool {
			v, err := d.VGPU(ctx, VGPU(uid))
			must(t, err)
			return v.MemoryLimit.State == rtxgd.MemoryHeld && len(v.Cgroups) == 1
		})
		if bytes := d.Limited("/pod"); bytes != 20<<30 {
			t.Errorf("%d bytes", bytes)
		}
	}
	must(t, s.Unprepare(ctx, uid))
	gone(t, d, s)
	testrig.Wait(t, "it is taken back", func() bool { return d.Limited("/pod") != 20<<30 })
}

func TestWhereNoDriverLimitsMemoryTheClaimIsPreparedAndTheReasonIsSaid(t *testing.T) {
	d, s := rig(t)
	d.NoLimits()
	w := claim(60)
	w.Settings.Memory = 20 << 30
	must(t, s.Prepare(ctx, w))
	complete(t, d, s, w)
	unlimited, err := s.Restore(ctx)
	if why := unlimited[VGPU(uid)]; err != nil || !strings.Contains(why, "memory of GPU nvidia0 cannot be limited") {
		t.Error(unlimited, err)
	}
	must(t, s.Unprepare(ctx, uid))
	gone(t, d, s)
}

func TestTwiceIsOnce(t *testing.T) {
	d, s := rig(t)
	w := claim(60)
	w.Settings.MaxPPM, w.Settings.Priority = 800000, 9
	for range 2 {
		must(t, s.Prepare(ctx, w))
		complete(t, d, s, w)
	}
	must(t, newState(d.Socket, d.Folder).Prepare(ctx, w))
	complete(t, d, s, w)
	for range 2 {
		must(t, s.Unprepare(ctx, uid))
		gone(t, d, s)
	}
	for _, garbage := range []types.UID{"", "../x", "a b", types.UID(strings.Repeat("x", 60))} {
		if err := s.Unprepare(ctx, garbage); err == nil || !strings.Contains(err.Error(), "UID") {
			t.Errorf("%q: %v", garbage, err)
		}
	}
}

func TestAClaimThatWasAllocatedAgainGetsWhatItAsksForNow(t *testing.T) {
	d, s := rig(t)
	must(t, s.Prepare(ctx, claim(60)))
	again := claim(20)
	again.Devices[0].ShareID = "another"
	must(t, s.Prepare(ctx, again))
	complete(t, d, s, again)
}

func TestARefusedClaimSaysTheValueAndLeavesNothing(t *testing.T) {
	d, s := rig(t)
	must(t, d.CreateVGPU(ctx, map[string]any{"vgpu": "own", "gpu": "nvidia0", "min_ppm": 500000}))
	err := s.Prepare(ctx, claim(60))
	if err == nil || !strings.Contains(err.Error(), "60%") || !strings.Contains(err.Error(), "50%") || !strings.Contains(err.Error(), "smaller share") {
		t.Errorf("%v", err)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v is not ENOSPC", err)
	}
	must(t, d.RemoveVGPU(ctx, "own"))
	gone(t, d, s)
	must(t, s.Prepare(ctx, claim(60))) // the kubelet asks again, and there is room now
	complete(t, d, s, claim(60))
}

func TestABoundOnLatencyNeedsTheLever(t *testing.T) {
	d := testrig.Start(t, testrig.Gate)
	s := newState(d.Socket, d.Folder)
	w := claim(60)
	w.Devices[0].GPU, w.Devices[0].Lever, w.Settings.Latency = "0", "gate", 5*time.Millisecond
	err := s.Prepare(ctx, w)
	if err == nil || !strings.Contains(err.Error(), "5ms") || !strings.Contains(err.Error(), "leave latency out") {
		t.Errorf("%v", err)
	}
	gone(t, d, s)

	d, s = rig(t)
	w = claim(60)
	w.Settings.Latency = 5 * time.Millisecond
	must(t, s.Prepare(ctx, w))
	complete(t, d, s, w)
}

func TestWithoutADaemonNothingIsPreparedAndAllIsKeptForTheNextTry(t *testing.T) {
	d, s := rig(t)
	d.Kill()
	err := s.Prepare(ctx, claim(60))
	if !errors.Is(err, rtxgd.ErrNoDaemon) || !strings.Contains(err.Error(), d.Socket) || !strings.Contains(err.Error(), "systemctl") {
		t.Errorf("%v", err)
	}
	d.Begin()
	must(t, s.Prepare(ctx, claim(60)))
	complete(t, d, s, claim(60))
	d.Kill()
	if err := s.Unprepare(ctx, uid); !errors.Is(err, rtxgd.ErrNoDaemon) {
		t.Errorf("%v", err)
	}
	d.Begin()
	must(t, s.Unprepare(ctx, uid))
	gone(t, d, s)
}

func TestAfterARebootClaimsAreMadeAgain(t *testing.T) {
	d, s := rig(t)
	must(t, s.Prepare(ctx, claim(60)))
	d.Forget()
	must(t, os.RemoveAll(s.CDI.Folder))
	d.Begin()
	if names := d.Names(); len(names) != 0 {
		t.Fatal(names)
	}
	restore(t, newState(d.Socket, d.Folder))
	complete(t, d, s, claim(60))
}

func TestADamagedCheckpointIsSetAsideAndClaimsAreFoundByTheirNames(t *testing.T) {
	for name, damage := range map[string]func(string) string{
		"cut":     func(text string) string { return text[:len(text)/2] },
		"empty":   func(string) string { return "" },
		"changed": func(text string) string { return strings.Replace(text, "600000", "700000", 1) },
		"null":    func(string) string { return `{"version": "v1", "claims": {"x": null}}` },
	} {
		t.Run(name, func(t *testing.T) {
			d, s := rig(t)
			must(t, s.Prepare(ctx, claim(60)))
			text, err := os.ReadFile(s.path())
			must(t, err)
			must(t, os.WriteFile(s.path(), []byte(damage(string(text))), 0o600))
			must(t, s.Prepare(ctx, claim(60)))
			complete(t, d, s, claim(60))
			if _, err := os.Stat(s.path() + ".damaged"); err != nil {
				t.Error(err)
			}
			must(t, os.WriteFile(s.path(), []byte("{"), 0o600))
			must(t, s.Unprepare(ctx, uid))
			gone(t, d, s)
		})
	}
}

func TestACheckpointOfAnotherVersionIsNotTouched(t *testing.T) {
	_, s := rig(t)
	text := []byte(`{"version": "v2", "claims": {}}`)
	must(t, os.WriteFile(s.path(), text, 0o600))
	if err := s.Prepare(ctx, claim(60)); err == nil || !strings.Contains(err.Error(), `"v2"`) {
		t.Errorf("%v", err)
	}
	if now, err := os.ReadFile(s.path()); err != nil || string(now) != string(text) {
		t.Errorf("%s, %v", now, err)
	}
}

func TestAdministratorsAccessMakesNoVGPU(t *testing.T) {
	d, s := rig(t)
	w := claim(0)
	w.Devices[0].Admin, w.Settings = true, nil
	must(t, s.Prepare(ctx, w))
	if names := d.Names(); len(names) != 0 {
		t.Error(names)
	}
	ids := s.CDI.IDs(uid, &w.Devices[0])
	if len(ids) != 1 { // no GPU itself
		t.Error(ids)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(s.CDI.Folder), cdi.WithAutoRefresh(false))
	must(t, err)
	device := cache.GetDevice(ids[0])
	if device == nil || len(device.ContainerEdits.Hooks)+len(device.ContainerEdits.DeviceNodes) != 0 || len(device.ContainerEdits.Mounts) != 1 ||
		device.ContainerEdits.Mounts[0].Options[0] != "ro" || device.ContainerEdits.Mounts[0].HostPath != s.CDI.Metrics {
		t.Errorf("%+v", device)
	}
	must(t, s.Unprepare(ctx, uid))
	gone(t, d, s)
}

// The process that dies in the tests below: it prepares or unprepares a claim, and kills itself at
// the step of that number. Exit status 0: there is no such step.
func TestMain(m *testing.M) {
	if at := os.Getenv("RTXG_TEST_DIE_AT"); at != "" {
		number, _ := strconv.Atoi(at)
		s := newState(os.Getenv("RTXG_TEST_SOCKET"), os.Getenv("RTXG_TEST_FOLDER"))
		s.Step = func(name string) {
			if number--; number < 0 {
				fmt.Print(name)
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		err := s.Prepare(ctx, whole())
		if os.Getenv("RTXG_TEST_DO") == "unprepare" {
			err = s.Unprepare(ctx, uid)
		}
		if err != nil {
			fmt.Print(err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// whole is a claim that takes each step.
func whole() *Wanted {
	w := claim(60)
	w.Settings.Memory = 20 << 30
	return w
}

// die runs that process; the name of the step at which it died, or "".
func die(t *testing.T, d *testrig.Daemon, what string, at int) string {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "RTXG_TEST_DIE_AT="+strconv.Itoa(at), "RTXG_TEST_DO="+what, "RTXG_TEST_SOCKET="+d.Socket,
		"RTXG_TEST_FOLDER="+d.Folder)
	text, err := child.Output()
	if err == nil {
		return ""
	}
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("step %d: %v: %s", at, err, text)
	}
	return string(text)
}

func TestADeathAtAnyStepIsMended(t *testing.T) {
	d, s := rig(t)
	for _, what := range []string{"prepare", "unprepare"} {
		steps := 0
		for ; ; steps++ {
			name := die(t, d, what, steps)
			if name == "" {
				break
			}
			t.Logf("%s died before: %s", what, name)
			// The next plugin restores at its start, then the kubelet asks again for what the pod needs.
			next := newState(d.Socket, d.Folder)
			restore(t, next)
			if steps%2 == 0 {
				must(t, next.Prepare(ctx, whole()))
				complete(t, d, next, whole())
			}
			must(t, next.Unprepare(ctx, uid))
			gone(t, d, next)
			// The same death, and then the pod is deleted at once, or the node reboots.
			die(t, d, what, steps)
			if steps%2 == 0 {
				must(t, next.Unprepare(ctx, uid))
			} else {
				d.Forget()
				must(t, os.RemoveAll(s.CDI.Folder))
				d.Begin()
				restore(t, next)
				must(t, next.Prepare(ctx, whole()))
				complete(t, d, next, whole())
				must(t, next.Unprepare(ctx, uid))
			}
			gone(t, d, next)
			if t.Failed() {
				t.Fatalf("%s, before %q", what, name)
			}
		}
		if steps < 6 {
			t.Errorf("%s has %d steps only", what, steps)
		}
		must(t, s.Unprepare(ctx, uid))
	}
}

func TestTheCheckpointIsReadableByPeople(t *testing.T) {
	_, s := rig(t)
	must(t, s.Prepare(ctx, claim(60)))
	text, err := os.ReadFile(s.path())
	must(t, err)
	var c checkpoint
	if err := json.Unmarshal(text, &c); err != nil || c.Claims[uid].Wanted.Name != "claim" || !strings.Contains(string(text), "\n") {
		t.Errorf("%s, %v", text, err)
	}
}
