// SPDX-License-Identifier: MIT

package gpus

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rtxg.io/kubernetes/internal/testrig"
)

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

func TestEachGPUHasADeviceNameOfItsOwn(t *testing.T) {
	seen := map[string]string{}
	for _, gpu := range []string{"nvidia0", "nvidia1", "0", "opencl:Portable Computing Language/cpu-znver3", "opencl:PoCL", "opencl-pocl", "OPENCL:pocl",
		"ü", strings.Repeat("x", 63), strings.Repeat("x", 62) + "y", strings.Repeat("opencl:", 9)} {
		name := DeviceName(gpu)
		if len(name) > 63 || !label.MatchString(name) {
			t.Errorf("%s: %q is no label of DNS", gpu, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s are both %s", gpu, other, name)
		}
		seen[name] = gpu
	}
	if DeviceName("nvidia0") != "nvidia0" {
		t.Error(DeviceName("nvidia0"))
	}
}

func TestWhatTheNodeReservedItselfIsNotPublished(t *testing.T) {
	d := testrig.Start(t, testrig.Nvidia)
	ctx := context.Background()
	for _, members := range []map[string]any{
		{"vgpu": "desktop", "gpu": "nvidia0", "min_ppm": 150000},
		{"vgpu": VGPUPrefix + "one", "gpu": "nvidia0", "min_ppm": 600000},
	} {
		if err := d.CreateVGPU(ctx, members); err != nil {
			t.Fatal(err)
		}
	}
	finder := &Finder{Daemon: &d.Client, Levers: []string{"nvidia"}, ProcDriver: filepath.Join(d.Folder, "proc")}
	found, err := finder.Find(ctx)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	g := found[0]
	if g.Device != "nvidia0" || g.Share != 85 || !g.Governed || g.Lever != "nvidia" || g.PCI == "" {
		t.Errorf("%+v", g)
	}
	folder := filepath.Join(d.Folder, "proc/gpus", g.PCI)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "information"), []byte("Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-1234\nGarbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	finder.MemoryOf, err = parseSMI("GPU-1234, 143771\nGPU-5678, [N/A]\n")
	if err != nil {
		t.Fatal(err)
	}
	if found, err = finder.Find(ctx); err != nil || found[0].UUID != "GPU-1234" || found[0].Model != "NVIDIA H200" ||
		found[0].Memory != 143771<<20 {
		t.Errorf("%+v, %v", found, err)
	}
	finder.Levers = []string{"gate"}
	if found, err = finder.Find(ctx); err != nil || len(found) == 0 || found[0].Name != "0" || found[0].Lever != "gate" {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestANodeWithoutTheLeverPublishesNothing(t *testing.T) {
	d := testrig.Start(t, testrig.Gate)
	found, err := (&Finder{Daemon: &d.Client, Levers: []string{"nvidia"}}).Find(context.Background())
	if err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	if text := Missing([]string{"nvidia"}); !strings.Contains(text, "rtxg doctor") {
		t.Error(text)
	}
	d.Kill()
	if _, err := (&Finder{Daemon: &d.Client}).Find(context.Background()); err == nil || !strings.Contains(err.Error(), d.Socket) ||
		!strings.Contains(err.Error(), "systemctl") {
		t.Error(err)
	}
}

func TestMemoryThatIsNoSizeIsRefused(t *testing.T) {
	for _, text := range []string{"", "much", "-1", "0"} {
		if _, err := FixedMemory(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if of, err := FixedMemory("80Gi"); err != nil || of("", "") != 80<<30 {
		t.Error(err)
	}
	if _, err := parseSMI("a,b,c\n"); err == nil {
		t.Error("three fields are accepted")
	}
}

// The API server refuses a whole slice because of one capacity that is against its rules.
func TestEachCapacityIsOneThatTheAPIServerAccepts(t *testing.T) {
	for _, share := range []int64{0, 1, 85, 100} {
		for _, memory := range []int64{0, 1, 1 << 20, 80e9, 143771 << 20} {
			for name, capacity := range Devices([]GPU{{Device: "nvidia0", Share: share, Memory: memory}})[0].Capacity {
				value, least := capacity.Value.Value(), capacity.RequestPolicy.ValidRange.Min.Value()
				most, ifNot := capacity.RequestPolicy.ValidRange.Max.Value(), capacity.RequestPolicy.Default.Value()
				if least < 0 || least > ifNot || ifNot > most || most > value {
					t.Errorf("%s of %d, %d: %d <= %d <= %d <= %d", name, share, memory, least, ifNot, most, value)
				}
				if step := capacity.RequestPolicy.ValidRange.Step; step != nil && (step.Value() <= 0 || least+step.Value() > value ||
					(ifNot-least)%step.Value() != 0 || (most-least)%step.Value() != 0) {
					t.Errorf("%s of %d, %d: step %d from %d, default %d, at most %d", name, share, memory, step.Value(), least, ifNot, most)
				}
			}
		}
	}
}
