// SPDX-License-Identifier: MIT

// Package testrig starts a real rtxgd for tests: with the gate, or with the NVIDIA lever on a fake
// driver (tests/levers/fake_rtxgd.c). RTXG_BUILD names the build folder, build/release by default.
package testrig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rtxg.io/kubernetes/internal/rtxgd"
)

// Patience is how long a test waits for what happens at once unless it never does.
const Patience = 2 * time.Minute

// Programs of the daemon, below the build folder.
const (
	Gate   = "daemon/rtxgd"
	Nvidia = "tests/levers/fake_rtxgd"
)

// Daemon is one rtxgd and its folder.
type Daemon struct {
	rtxgd.Client
	Folder  string
	program string
	process *exec.Cmd
	t       testing.TB
	lines   []string
}

func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../..")
}

// Built is a program of the build folder; without it the test is skipped.
func Built(t testing.TB, program string) string {
	t.Helper()
	build := os.Getenv("RTXG_BUILD")
	if build == "" {
		build = filepath.Join(root(), "build/release")
	}
	path := filepath.Join(build, program)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not built (tools/build)", path)
	}
	return path
}

// Start starts the program, and ends it with the test.
func Start(t testing.TB, program string) *Daemon {
	t.Helper()
	path := Built(t, program)
	// t.TempDir() may be longer than the 107 bytes of a socket's path.
	folder, err := os.MkdirTemp("", "rtxg")
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Folder: folder, program: path, t: t, Client: rtxgd.Client{Socket: filepath.Join(folder, "rtxgd.sock")}}
	t.Cleanup(func() {
		d.Kill()
		os.RemoveAll(folder)
	})
	d.write()
	if err := os.Mkdir(d.cgroups(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.limits(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.Begin()
	return d
}

func (d *Daemon) processes() string { return filepath.Join(d.Folder, "processes") }

// assigned is where the NVIDIA lever notes which process it was told to put where.
func (d *Daemon) assigned() string { return d.Socket + ".assigned" }

func (d *Daemon) write() {
	text := strings.Join(d.lines, "")
	if err := os.WriteFile(d.processes()+".new", []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(d.processes()+".new", d.processes()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Daemon) limits() string  { return filepath.Join(d.Folder, "limits") }
func (d *Daemon) cgroups() string { return filepath.Join(d.Folder, "cgroup") }

// Cgroup makes a cgroup as a container has it, and binds it to the vGPU as the CDI hook does.
func (d *Daemon) Cgroup(name, vgpu string) {
	d.t.Helper()
	err := os.Mkdir(filepath.Join(d.cgroups(), name), 0o700)
	if err == nil {
		err = d.Ask(context.Background(), "cgroup-bind", map[string]any{"vgpu": vgpu, "cgroup": name}, nil)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// Limited is what the driver was told of the cgroup last, in bytes; 0: nothing.
func (d *Daemon) Limited(name string) (bytes uint64) {
	text, _ := os.ReadFile(d.limits())
	for _, line := range strings.Split(string(text), "\n") {
		if words := strings.Fields(line); len(words) == 4 && words[1] == filepath.Join(d.cgroups(), name) {
			bytes, _ = strconv.ParseUint(words[3], 10, 64)
		}
	}
	return bytes
}

// NoLimits begins the daemon again with a driver that limits no memory, and waits until it knows.
func (d *Daemon) NoLimits() {
	d.t.Helper()
	d.Kill()
	if err := os.WriteFile(d.limits()+".fail", []byte("3"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.Begin()
	Wait(d.t, "the driver was asked", func() bool {
		var reply struct {
			Checks []struct{ Check, Detail string } `json:"checks"`
		}
		if err := d.Ask(context.Background(), "doctor", nil, &reply); err != nil {
			d.t.Fatal(err)
		}
		for _, c := range reply.Checks {
			if c.Check == "memory nvidia0" {
				return !strings.Contains(c.Detail, "not tried")
			}
		}
		return false
	})
}

// Process makes a process that seems to use the fake GPU 0; its pid.
func (d *Daemon) Process(kind string) int {
	sleep := exec.Command("sleep", "600")
	if err := sleep.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	})
	d.lines = append(d.lines, fmt.Sprintf("%d 0 %s\n", sleep.Process.Pid, kind))
	d.write()
	return sleep.Process.Pid
}

// Gone ends a process that Process made.
func (d *Daemon) Gone(pid int) {
	for i, line := range d.lines {
		if words := strings.Fields(line); words[0] == strconv.Itoa(pid) {
			d.lines[i] = fmt.Sprintf("%s %s gone\n", words[0], words[1])
		}
	}
	d.write()
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// Begin starts the daemon, also after Kill, and waits until it answers.
func (d *Daemon) Begin() {
	d.t.Helper()
	log, err := os.OpenFile(filepath.Join(d.Folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	d.process = exec.Command(d.program, "--user", "--socket", d.Socket, "--config-root", filepath.Join(d.Folder, "root"), "--idle-exit", "0")
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "RTXG_") {
			d.process.Env = append(d.process.Env, e)
		}
	}
	d.process.Env = append(d.process.Env, "RTXG_SOCKET="+d.Socket, "RTXG_HOST=daemon", "HOME="+d.Folder,
		"RTXG_FAKE_NVIDIA="+d.processes(), "RTXG_FAKE_ASSIGNED="+d.assigned(),
		// A library of the driver that limits memory of cgroups, and the tree of these.
		"LD_LIBRARY_PATH="+filepath.Dir(Built(d.t, "tests/levers/libnvidia-ml.so.1")), "RTXG_FAKE_NVML="+d.limits(),
		"RTXG_CGROUP_ROOT="+d.cgroups())
	d.process.Stdout, d.process.Stderr = log, log
	d.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.process.Start(); err != nil {
		d.t.Fatal(err)
	}
	Wait(d.t, "rtxgd answers", func() bool {
		_, err := d.VGPUs(context.Background())
		return err == nil
	})
}

// Kill ends the daemon as a crash does.
func (d *Daemon) Kill() {
	if d.process != nil && d.process.ProcessState == nil {
		_ = d.process.Process.Kill()
		_ = d.process.Wait()
	}
}

// Forget ends the daemon and what it keeps beyond its end, as a reboot of the node does.
func (d *Daemon) Forget() {
	d.Kill()
	kept, _ := filepath.Glob(d.Socket + "*")
	for _, file := range kept {
		os.Remove(file)
	}
}

// Names are the vGPUs that are there, but for the one that always is.
func (d *Daemon) Names() []string {
	d.t.Helper()
	vgpus, err := d.VGPUs(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	names := []string{}
	for _, v := range vgpus {
		if v.Name != "default" {
			names = append(names, v.Name)
		}
	}
	return names
}

// Wait calls condition until it is true.
func Wait(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatalf("%s: not within %s", what, Patience)
}
