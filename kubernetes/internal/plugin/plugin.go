// SPDX-License-Identifier: MIT

// Package plugin is the kubelet's plugin of driver gpu.rtxg.io: it publishes the node's GPUs,
// prepares claims and gives them back, and says in the claims how it stands.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"rtxg.io/kubernetes/internal/claims"
	"rtxg.io/kubernetes/internal/gpus"
	"rtxg.io/kubernetes/internal/rtxgd"
	"rtxg.io/kubernetes/internal/status"
)

// Options of a plugin.
type Options struct {
	Node           string
	PodUID         string // of the plugin's pod; two of them may run while one replaces the other
	Client         kubernetes.Interface
	Daemon         *rtxgd.Client
	Finder         *gpus.Finder
	State          *claims.State
	PluginFolder   string // /var/lib/kubelet/plugins/gpu.rtxg.io
	RegistryFolder string // /var/lib/kubelet/plugins_registry
	Every          time.Duration
	// Rtxg is the command line tool, which writes metrics for administrators; "": none.
	Rtxg string
	// Also is called in each round, with the GPUs that were found. May be nil.
	Also func(ctx context.Context, found []gpus.GPU) error
	// Fatal is called with an error after which the plugin cannot go on.
	Fatal func(error)
}

// Plugin is a plugin that runs.
type Plugin struct {
	Options
	helper    *kubeletplugin.Helper
	judge     status.Judge
	writer    status.Writer
	published []gpus.GPU
	once      bool
	round     int
}

const staleRounds = 60 // between two looks whether claims are still there

// Start publishes the node's GPUs and serves the kubelet, until the context ends.
func Start(ctx context.Context, o Options) (*Plugin, error) {
	p := &Plugin{Options: o, writer: status.Writer{Client: o.Client.ResourceV1()}}
	for _, folder := range []string{o.PluginFolder, o.State.CDI.Folder} {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			return nil, fmt.Errorf("folder: %w", err)
		}
	}
	if _, err := o.State.Restore(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Claims of before are not all there; tried again later")
	}
	helper, err := kubeletplugin.Start(ctx, p, kubeletplugin.KubeClient(o.Client), kubeletplugin.NodeName(o.Node),
		kubeletplugin.DriverName(gpus.Driver), kubeletplugin.RegistrarDirectoryPath(o.RegistryFolder),
		kubeletplugin.PluginDataDirectoryPath(o.PluginFolder), kubeletplugin.RollingUpdate(types.UID(o.PodUID)))
	if err != nil {
		return nil, fmt.Errorf("kubelet's plugin: %w", err)
	}
	p.helper = helper
	return p, nil
}

// Run does a round, and another each time that the interval has passed, until the context ends.
func (p *Plugin) Run(ctx context.Context) {
	ticker := time.NewTicker(p.Every)
	defer ticker.Stop()
	for {
		if err := p.Round(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Round")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Stop ends the service.
func (p *Plugin) Stop() { p.helper.Stop() }

// Round publishes what changed, makes what was lost, takes away what nobody claims any more, and
// writes conditions.
func (p *Plugin) Round(ctx context.Context) error {
	var failed []error
	var unlimited map[string]string
	found, err := p.Finder.Find(ctx)
	if err == nil {
		unlimited, err = p.State.Restore(ctx)
		failed = append(failed, p.countClaims(found), p.publish(ctx, found), err)
		if p.Also != nil {
			failed = append(failed, p.Also(ctx, found))
		}
	} else {
		failed = append(failed, err)
	}
	known, err := p.State.Known()
	if err != nil {
		return errors.Join(append(failed, err)...)
	}
	failed = append(failed, p.writeMetrics(ctx, known))
	if p.round%staleRounds == 0 {
		failed = append(failed, p.dropStale(ctx, known))
	}
	p.round++
	view := p.view(ctx)
	view.Unlimited = unlimited
	names := map[string]bool{}
	for uid, entry := range known {
		names[claims.VGPU(uid)] = true
		if entry.Phase != claims.Prepared {
			continue
		}
		wanted := &entry.Wanted
		failed = append(failed, p.writer.Write(ctx, wanted, func(d *claims.Device) []metav1.Condition {
			return p.judge.Conditions(wanted, d, view)
		}))
	}
	p.judge.Forget(names)
	return errors.Join(failed...)
}

// countClaims says of each GPU how many claims are prepared on it.
func (p *Plugin) countClaims(found []gpus.GPU) error {
	known, err := p.State.Known()
	for _, entry := range known {
		for i := range found {
			if gpu := entry.Wanted.GPU(); gpu != nil && gpu.GPU == found[i].Name && entry.Phase == claims.Prepared {
				found[i].Claims++
			}
		}
	}
	return err
}

func (p *Plugin) publish(ctx context.Context, found []gpus.GPU) error {
	if p.once && reflect.DeepEqual(found, p.published) {
		return nil
	}
	if len(found) == 0 {
		klog.FromContext(ctx).Info(gpus.Missing(p.Finder.Levers))
	}
	if err := p.helper.PublishResources(ctx, gpus.Resources(p.Node, found)); err != nil {
		return fmt.Errorf("resource slice: %w", err)
	}
	p.published, p.once = found, true
	return nil
}

func (p *Plugin) view(ctx context.Context) *status.View {
	view := &status.View{VGPUs: map[string]rtxgd.VGPU{}}
	vgpus, err := p.Daemon.VGPUs(ctx)
	if err == nil {
		view.Using, view.Refused, err = p.Daemon.Processes(ctx)
	}
	if err == nil {
		view.Stats, err = p.Daemon.Stats(ctx)
	}
	view.Silent = err
	for _, v := range vgpus {
		view.VGPUs[v.Name] = v
	}
	return view
}

// dropStale gives back claims that have gone while the kubelet or this plugin was away.
func (p *Plugin) dropStale(ctx context.Context, known map[types.UID]*claims.Entry) error {
	var failed []error
	for uid, entry := range known {
		w := &entry.Wanted
		claim, err := p.Client.ResourceV1().ResourceClaims(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("claim %s/%s: %w", w.Namespace, w.Name, err))
			continue
		}
		if err == nil && claim.UID == uid && claim.Status.Allocation != nil {
			continue
		}
		klog.FromContext(ctx).Info("Claim has gone", "claim", w.Namespace+"/"+w.Name, "uid", uid)
		failed = append(failed, p.State.Unprepare(ctx, uid))
	}
	return errors.Join(failed...)
}

// writeMetrics writes the node's metrics for claims with administrator's access, while there are any.
func (p *Plugin) writeMetrics(ctx context.Context, known map[types.UID]*claims.Entry) error {
	file := filepath.Join(p.State.CDI.Metrics, "rtxg.prom")
	wanted := false
	for _, entry := range known {
		for _, d := range entry.Wanted.Devices {
			wanted = wanted || d.Admin
		}
	}
	if !wanted || p.Rtxg == "" {
		return nil
	}
	if err := os.MkdirAll(p.State.CDI.Metrics, 0o755); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, p.Rtxg, "metrics", "--textfile", file)
	command.Env = append(os.Environ(), "RTXG_SOCKET="+p.Daemon.Socket)
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s metrics: %w: %s", p.Rtxg, err, strings.TrimSpace(string(text)))
	}
	return nil
}

// PrepareResourceClaims makes vGPUs and CDI devices for claims.
func (p *Plugin) PrepareResourceClaims(ctx context.Context, list []*resourceapi.ResourceClaim) (
	map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	found, err := p.Finder.Find(ctx)
	for _, claim := range list {
		if err != nil {
			results[claim.UID] = kubeletplugin.PrepareResult{Err: err}
			continue
		}
		devices, err := p.prepare(ctx, claim, found)
		if err != nil {
			err = fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
			klog.FromContext(ctx).Error(err, "Claim is not prepared")
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Err: err, Devices: devices}
	}
	return results, nil
}

func (p *Plugin) prepare(ctx context.Context, claim *resourceapi.ResourceClaim, found []gpus.GPU) ([]kubeletplugin.Device, error) {
	wanted, err := claims.Read(claim, p.Node, found)
	if err != nil {
		return nil, err
	}
	if err := p.State.Prepare(ctx, wanted); err != nil {
		return nil, err
	}
	// The container's mount needs the folder; the metrics come in the next round at the latest.
	if err := p.writeMetrics(ctx, map[types.UID]*claims.Entry{wanted.UID: {Wanted: *wanted}}); err != nil {
		return nil, err
	}
	var devices []kubeletplugin.Device
	for i := range wanted.Devices {
		d := &wanted.Devices[i]
		device := kubeletplugin.Device{Requests: []string{d.Request}, PoolName: d.Pool, DeviceName: d.Device,
			CDIDeviceIDs: p.State.CDI.IDs(wanted.UID, d)}
		if d.ShareID != "" {
			share := types.UID(d.ShareID)
			device.ShareID = &share
		}
		devices = append(devices, device)
	}
	return devices, nil
}

// UnprepareResourceClaims takes them away.
func (p *Plugin) UnprepareResourceClaims(ctx context.Context, list []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range list {
		err := p.State.Unprepare(ctx, claim.UID)
		if err != nil {
			err = fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
			klog.FromContext(ctx).Error(err, "Claim is not given back")
		}
		results[claim.UID] = err
	}
	return results, nil
}

// HandleError logs what went wrong in the background, and ends the plugin if it cannot go on.
func (p *Plugin) HandleError(ctx context.Context, err error, message string) {
	runtime.HandleErrorWithContext(ctx, err, message)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) && p.Fatal != nil {
		p.Fatal(fmt.Errorf("%s: %w", message, err))
	}
}
