// SPDX-License-Identifier: MIT

// Package command is the program rtxg-kubernetes, which rtxg runs in a cluster: "plugin" on each node,
// beside the kubelet, and "webhook" once.
package command

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"rtxg.io/kubernetes/internal/claims"
	"rtxg.io/kubernetes/internal/gpus"
	"rtxg.io/kubernetes/internal/kai"
	"rtxg.io/kubernetes/internal/plugin"
	"rtxg.io/kubernetes/internal/rtxgd"
	"rtxg.io/kubernetes/internal/webhook"
)

const usage = `Usage: rtxg-kubernetes plugin|webhook [OPTION...]

 plugin    publish the GPUs that rtxgd governs on this node, and prepare claims for the kubelet
 webhook   refuse claims whose parameters for driver gpu.rtxg.io cannot be right

"rtxg-kubernetes plugin --help" and "rtxg-kubernetes webhook --help" list the options.
`

// Program is one call of rtxg-kubernetes.
type Program struct {
	// Step is called before each step of the plugin that changes something, with its name. Tests die
	// there. May be nil.
	Step func(name string)
}

// Run does what the arguments ask for, until the context ends. flag.ErrHelp is no failure.
func (p *Program) Run(ctx context.Context, arguments []string) error {
	if len(arguments) > 0 {
		switch arguments[0] {
		case "plugin":
			return p.plugin(ctx, arguments[1:])
		case "webhook":
			return runWebhook(ctx, arguments[1:])
		case "-h", "--help", "help":
			fmt.Print(usage)
			return nil
		}
		return fmt.Errorf("%q is no command; plugin and webhook are accepted", arguments[0])
	}
	fmt.Fprint(os.Stderr, usage)
	return errors.New("a command is missing")
}

func flags(name string) *flag.FlagSet {
	set := flag.NewFlagSet("rtxg-kubernetes "+name, flag.ContinueOnError)
	flag.VisitAll(func(f *flag.Flag) {
		if f.Name == "v" {
			set.Var(f.Value, f.Name, f.Usage)
		}
	})
	return set
}

func parse(set *flag.FlagSet, arguments []string) error {
	if err := set.Parse(arguments); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("%q: no argument is accepted", set.Arg(0))
	}
	return nil
}

func (p *Program) plugin(ctx context.Context, arguments []string) error {
	set := flags("plugin")
	node := set.String("node-name", os.Getenv("NODE_NAME"), "the node's name (default: $NODE_NAME)")
	pod := set.String("pod-uid", os.Getenv("POD_UID"), "UID of this pod, so that two may run while one replaces the other (default: $POD_UID)")
	kubeconfig := set.String("kubeconfig", "", "how to reach the cluster (default: as a pod in it)")
	socket := set.String("socket", rtxgd.DefaultSocket, "rtxgd's socket, at the same path on the node and here")
	levers := set.String("levers", "nvidia", "publish GPUs of these levers: nvidia, gate, or both with a comma")
	cdiFolder := set.String("cdi-folder", "/var/run/cdi", "where the container runtime reads CDI specifications")
	hook := set.String("hook", "/usr/libexec/rtxg/rtxg-cdi-hook", "rtxg-cdi-hook on the node")
	gpuKind := set.String("gpu-cdi-kind", "nvidia.com/gpu", "CDI devices that give a container the GPU itself; empty: something else does")
	plugins := set.String("plugins-folder", kubeletplugin.KubeletPluginsDir, "the kubelet's folder of plugins")
	registry := set.String("registry-folder", kubeletplugin.KubeletRegistryDir, "the kubelet's folder of registrations")
	memory := set.String("gpu-memory", "", "memory of each GPU, as 80Gi (default: what nvidia-smi says)")
	smi := set.String("nvidia-smi", "nvidia-smi", "the program, for --gpu-memory")
	proc := set.String("proc-driver", "/proc/driver/nvidia", "where the NVIDIA driver says what its GPUs are")
	metrics := set.String("metrics-folder", "/run/rtxg-metrics", "where metrics for claims with administrator's access are, here and on the node")
	rtxg := set.String("rtxg", "rtxg", "the command line tool that writes them; empty: no metrics")
	every := set.Duration("every", 10*time.Second, "time between two looks at the node, 1s to 10m")
	withKAI := set.Bool("kai", false, "give pods with KAI's annotation gpu-fraction a vGPU")
	cgroups := set.String("cgroup-driver", kai.Systemd, "the kubelet's cgroupDriver, for --kai: systemd or cgroupfs")
	root := set.String("cgroup-root", "", "the kubelet's cgroupRoot, for --kai")
	if err := parse(set, arguments); err != nil {
		return err
	}
	if *node == "" {
		return errors.New("--node-name: the node's name is missing; give it, or set NODE_NAME")
	}
	if *every < time.Second || *every > 10*time.Minute {
		return fmt.Errorf("--every: %s is out of range; 1s to 10m is accepted", *every)
	}
	if *cgroups != kai.Systemd && *cgroups != kai.Cgroupfs {
		return fmt.Errorf("--cgroup-driver: %q is not accepted; systemd and cgroupfs are", *cgroups)
	}
	chosen := strings.Split(*levers, ",")
	for _, lever := range chosen {
		if lever != "nvidia" && lever != "gate" {
			return fmt.Errorf("--levers: %q is not accepted; nvidia and gate are", lever)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if *kubeconfig == "" {
		config, err = rest.InClusterConfig()
	}
	if err != nil {
		return fmt.Errorf("cluster: %w; give --kubeconfig where this does not run as a pod", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	var memoryOf func(uuid, pci string) int64
	if *memory != "" {
		if memoryOf, err = gpus.FixedMemory(*memory); err != nil {
			return err
		}
	} else if memoryOf, err = gpus.MemoryBySMI(ctx, *smi); err != nil {
		klog.FromContext(ctx).Info("No memory is published; --gpu-memory says it", "why", err.Error())
		memoryOf = nil
	}
	daemon := &rtxgd.Client{Socket: *socket}
	folder := filepath.Join(*plugins, gpus.Driver)
	ctx, fail := context.WithCancelCause(ctx)
	options := plugin.Options{
		Node: *node, PodUID: *pod, Client: client, Daemon: daemon, PluginFolder: folder, RegistryFolder: *registry, Every: *every,
		Rtxg: *rtxg, Fatal: fail,
		Finder: &gpus.Finder{Daemon: daemon, Levers: chosen, ProcDriver: *proc, MemoryOf: memoryOf},
		State: &claims.State{Daemon: daemon, Folder: folder, Log: klog.FromContext(ctx), Step: p.Step,
			CDI: &claims.CDI{Folder: *cdiFolder, Hook: *hook, Socket: *socket, Metrics: *metrics, GPUKind: *gpuKind}},
	}
	if *withKAI {
		pods := &kai.Pods{Client: client, Node: *node, Daemon: daemon, Cgroups: *cgroups, Root: *root}
		options.Also = pods.Sync
	}
	started, err := plugin.Start(ctx, options)
	if err != nil {
		return err
	}
	defer started.Stop()
	started.Run(ctx)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func runWebhook(ctx context.Context, arguments []string) error {
	set := flags("webhook")
	address := set.String("address", ":8443", "where to listen")
	certificate := set.String("tls-cert-file", "", "certificate, which is read again for each connection")
	key := set.String("tls-key-file", "", "its key")
	if err := parse(set, arguments); err != nil {
		return err
	}
	if *certificate == "" || *key == "" {
		return errors.New("--tls-cert-file and --tls-key-file: both are needed, as the API server speaks TLS only")
	}
	server := &http.Server{
		Addr: *address, Handler: webhook.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(*certificate, *key)
			return &pair, err
		}},
	}
	go func() {
		<-ctx.Done()
		patience, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(patience)
	}()
	if err := server.ListenAndServeTLS("", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("webhook: %w", err)
	}
	return nil
}
