// SPDX-License-Identifier: MIT

// controlplane is Kubernetes' own programs for a test: etcd, kube-apiserver and kube-scheduler, each a
// process with the options that it always has, and "controllers", a process with a few of the
// controllers of kube-controller-manager. They are one program, as they share most of what a linker
// has to do.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"kube-apiserver": apiserver.NewAPIServerCommand,
		"kube-scheduler": func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"controllers":    newControllersCommand,
	}
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "Usage: controlplane etcd|kube-apiserver|kube-scheduler|controllers [OPTION...]")
		os.Exit(2)
	}
	name := os.Args[1]
	os.Args = append([]string{name}, os.Args[2:]...)
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command := commands[name]
	if command == nil {
		fmt.Fprintf(os.Stderr, "controlplane: %q is no program; etcd, kube-apiserver, kube-scheduler and controllers are\n", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
