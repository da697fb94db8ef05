// SPDX-License-Identifier: MIT

//go:build cluster

// Package cluster tests the driver in a cluster: etcd, kube-apiserver, kube-scheduler and some
// controllers of Kubernetes (built from its Go modules, folder controlplane), the chart as
// Helm renders it, the plugin with the rights that the chart gives to it, and a real rtxgd on a fake
// NVIDIA driver. What is not there: a kubelet and a container runtime. The tests do what a kubelet
// does: they run the pods' programs, call the plugin, and say which pods run.
package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"rtxg.io/kubernetes/internal/command"
)

var ctx = context.Background()

// dieAt names the step at which the plugin of a test kills itself; its arguments are the plugin's.
const dieAt = "RTXG_TEST_DIE_AT"

func TestMain(m *testing.M) {
	if at := os.Getenv(dieAt); at != "" {
		os.Exit(dying(at))
	}
	flag.Parse()
	all := &everyTest{}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-signals
		all.end(1)
	}()
	outliving = all
	start(all)
	all.end(m.Run())
}

// dying is the plugin that kills itself before the step of that number.
func dying(at string) int {
	number, _ := strconv.Atoi(at)
	klog.InitFlags(nil)
	program := &command.Program{Step: func(name string) {
		if number--; number < 0 {
			fmt.Println("died before:", name)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}
	if err := program.Run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// outliving is what a test starts that the next ones find.
var outliving testing.TB

// everyTest is what outlives a test: the cluster is started once.
type everyTest struct {
	testing.TB
	cleanups []func()
}

func (e *everyTest) Helper()            {}
func (e *everyTest) Cleanup(end func()) { e.cleanups = append(e.cleanups, end) }

func (e *everyTest) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	e.end(1)
}

func (e *everyTest) Fatalf(format string, args ...any) { e.Fatal(fmt.Sprintf(format, args...)) }

func (e *everyTest) Skipf(format string, args ...any) { e.Fatalf(format, args...) }

func (e *everyTest) end(status int) {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
	os.Exit(status)
}

// until waits until the condition holds, however long that takes: the test's own limit ends it. What
// it waits for is said when it takes long.
func until(t testing.TB, what string, condition func() error) {
	t.Helper()
	begun, said := time.Now(), time.Now()
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Since(said) > time.Minute {
			said = time.Now()
			fmt.Fprintf(os.Stderr, "waiting since %s: %s: %v\n", said.Sub(begun).Round(time.Second), what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func has(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in: %s", word, text)
		}
	}
}
