// SPDX-License-Identifier: MIT

// rtxg-kubernetes is what rtxg runs in a cluster: see package command.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"rtxg.io/kubernetes/internal/command"
)

func main() {
	klog.InitFlags(nil)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := (&command.Program{}).Run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "rtxg-kubernetes:", err)
		os.Exit(1)
	}
}
