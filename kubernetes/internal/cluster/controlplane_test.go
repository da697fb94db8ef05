// SPDX-License-Identifier: MIT

//go:build cluster

package cluster

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// cluster is the control plane, and an administrator's connection to it.
type cluster struct {
	folder string
	config *rest.Config
	client kubernetes.Interface
	loose  dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// webhook is where the webhook's pod listens: what a Service would find.
	webhook atomic.Value
}

// Programs of the control plane, and who they are to the API server.
const (
	apiserver   = "kube-apiserver"
	scheduler   = "kube-scheduler"
	controllers = "controllers"
	admin       = "admin"
)

func source() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../..")
}

// build makes a program of a Go module, with as many CPUs as GOFLAGS allow.
func build(t testing.TB, module, of, into string, flags ...string) string {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(into), 0o755))
	command := exec.Command("go", append(append([]string{"-C", filepath.Join(source(), module), "build", "-o", into}, flags...), of)...)
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, text)
	}
	return into
}

// run starts a program that ends with the tests, or with its own error; its log is in the folder.
func (c *cluster) run(t testing.TB, name string, command *exec.Cmd) *exec.Cmd {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(c.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, command.Start())
	t.Cleanup(func() { kill(command) })
	return command
}

func kill(command *exec.Cmd) {
	if command.ProcessState == nil {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
}

// ended says why a program that should run does not.
func (c *cluster) ended(name string, command *exec.Cmd) error {
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(command.Process.Pid, &status, syscall.WNOHANG, nil); err == nil && pid == 0 {
		return nil
	}
	log, _ := os.ReadFile(filepath.Join(c.folder, name+".log"))
	return fmt.Errorf("%s has ended (%v):\n%s", name, status, log[max(0, len(log)-4000):])
}

// lonely is a loopback address that is most likely ours alone, and a port below those that the kernel
// gives away.
func lonely() (host, port string) {
	b := make([]byte, 5)
	_, _ = rand.Read(b)
	return fmt.Sprintf("127.%d.%d.%d", b[0], b[1], 1+b[2]%254), strconv.Itoa(20000 + (int(b[3])<<8|int(b[4]))%12000)
}

// startCluster starts the four programs, and waits until the API server is ready.
func startCluster(t testing.TB) *cluster {
	t.Helper()
	program := os.Getenv("RTXG_CONTROLPLANE")
	if program == "" {
		program = build(t, "controlplane", ".", filepath.Join(source(), "../build/kubernetes/controlplane"), "-trimpath",
			"-ldflags=-s -w")
	}
	folder, err := os.MkdirTemp("", "rtxgk8s")
	must(t, err)
	c := &cluster{folder: folder}
	t.Cleanup(func() { os.RemoveAll(folder) })
	in := func(name string) string { return filepath.Join(folder, name) }

	host, port := lonely()
	etcd := "http://" + net.JoinHostPort(host, port)
	c.run(t, "etcd", exec.Command(program, "etcd", "--data-dir="+in("etcd"), "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls=http://"+host+":0", "--unsafe-no-fsync", "--log-level=warn"))

	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	c.write(t, "account.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	c.write(t, "tokens", []byte(`admin,admin,1,"system:masters"
kube-scheduler,system:kube-scheduler,2,""
controllers,controllers,3,"system:masters"
`))
	// What kube-proxy is elsewhere: webhooks are reached by their Service, with its name in the certificate.
	c.write(t, "egress.yaml", []byte(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: `+in("proxy")+`}}}
`))
	c.proxy(t)
	host, port = lonely()
	server := c.run(t, apiserver, exec.Command(program, apiserver, "--etcd-servers="+etcd, "--bind-address="+host, "--secure-port="+port,
		"--cert-dir="+in("cert"), "--advertise-address=192.0.2.1", "--external-hostname=localhost", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+in("account.key"), "--service-account-signing-key-file="+in("account.key"),
		"--authorization-mode=Node,RBAC", "--token-auth-file="+in("tokens"), "--allow-privileged",
		"--egress-selector-config-file="+in("egress.yaml"), "--runtime-config=resource.k8s.io/v1beta2=true"))
	until(t, "the API server has its certificate", func() error {
		must(t, c.ended(apiserver, server))
		_, err := os.Stat(in("cert/apiserver.crt"))
		return err
	})
	c.config = &rest.Config{Host: "https://" + net.JoinHostPort(host, port), BearerToken: admin, QPS: 1000, Burst: 1000,
		TLSClientConfig: rest.TLSClientConfig{CAFile: in("cert/apiserver.crt")}}
	for _, who := range []string{scheduler, controllers} {
		c.kubeconfig(t, who+".conf", who)
	}
	until(t, "the API server is ready", func() error {
		must(t, c.ended(apiserver, server))
		if c.client == nil {
			client, err := kubernetes.NewForConfig(c.config)
			if err != nil {
				return err
			}
			c.client = client
		}
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	c.loose, err = dynamic.NewForConfig(c.config)
	must(t, err)
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	c.run(t, scheduler, exec.Command(program, scheduler, "--kubeconfig="+in(scheduler+".conf"), "--leader-elect=false", "--secure-port=0"))
	c.run(t, controllers, exec.Command(program, controllers, "--kubeconfig="+in(controllers+".conf")))
	return c
}

func (c *cluster) write(t testing.TB, name string, text []byte) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(c.folder, name), text, 0o600))
}

// kubeconfig makes a file for a program that has this token.
func (c *cluster) kubeconfig(t testing.TB, name, token string) string {
	t.Helper()
	file := filepath.Join(c.folder, name)
	must(t, clientcmd.WriteToFile(clientcmdapi.Config{CurrentContext: "c",
		Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: c.config.Host, CertificateAuthority: c.config.CAFile}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"c": {Token: token}},
		Contexts:  map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}}}, file))
	return file
}

// proxy leads the API server's calls of the webhook's Service to the webhook's program.
func (c *cluster) proxy(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(c.folder, "proxy"))
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				reader := bufio.NewReader(from)
				request, err := http.ReadRequest(reader)
				if err != nil {
					return
				}
				to, err := c.dial(request)
				if err != nil {
					fmt.Fprintf(from, "HTTP/1.1 502 %v\r\n\r\n", err)
					return
				}
				defer to.Close()
				fmt.Fprint(from, "HTTP/1.1 200 Connection established\r\n\r\n")
				go func() {
					_, _ = io.Copy(to, reader)
					to.Close()
				}()
				_, _ = io.Copy(from, to)
			}()
		}
	}()
}

func (c *cluster) dial(request *http.Request) (net.Conn, error) {
	service, err := c.client.CoreV1().Services(namespace).Get(ctx, "rtxg-webhook", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	address, _ := c.webhook.Load().(string)
	if wanted := net.JoinHostPort(service.Spec.ClusterIP, "443"); request.Method != http.MethodConnect || request.Host != wanted || address == "" {
		return nil, fmt.Errorf("%s %s: no such service, or no program behind it", request.Method, request.Host)
	}
	return net.Dial("tcp", address)
}

// objects are those of a text in YAML.
func objects(t testing.TB, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		one, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		object := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal(one, &object.Object))
		if object.Object != nil {
			all = append(all, object)
		}
	}
}

// create gives an object to the API server, in a namespace if it is of one.
func (c *cluster) create(namespace string, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if mapping.Scope.Name() == "root" {
		return c.loose.Resource(mapping.Resource).Create(ctx, object, strict)
	}
	return c.loose.Resource(mapping.Resource).Namespace(namespace).Create(ctx, object, strict)
}

// read gives the objects of a file of the module.
func read(t testing.TB, name string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(source(), name))
	must(t, err)
	return objects(t, text)
}

// render gives the chart's objects.
func render(t testing.TB, values string) []*unstructured.Unstructured {
	t.Helper()
	command := exec.Command("go", "-C", filepath.Join(source(), "charttest"), "run", "./render", "../chart", "rtxg", namespace)
	command.Stdin = strings.NewReader(values)
	var said bytes.Buffer
	command.Stderr = &said
	text, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, said.String())
	}
	return objects(t, text)
}
