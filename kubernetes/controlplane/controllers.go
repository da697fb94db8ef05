// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/resourceclaim"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

const workers = 2 // of each controller

func newControllersCommand() *cobra.Command {
	command := &cobra.Command{Use: "controllers", Short: "what makes pods of DaemonSets and Deployments, claims of templates, " +
		"accounts of namespaces, and removes what has lost its owner"}
	kubeconfig := command.Flags().String("kubeconfig", "", "how to reach the cluster")
	command.RunE = func(command *cobra.Command, _ []string) error { return runControllers(command.Context(), *kubeconfig) }
	return command
}

func runControllers(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	loose, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	typed, untyped := informers.NewSharedInformerFactory(client, 0), metadatainformer.NewSharedInformerFactory(loose, 0)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	started := make(chan struct{})

	accounts, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), typed.Core().V1().ServiceAccounts(),
		typed.Core().V1().Namespaces(), client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return fmt.Errorf("accounts: %w", err)
	}
	daemons, err := daemon.NewDaemonSetsController(ctx, typed.Apps().V1().DaemonSets(), typed.Apps().V1().ControllerRevisions(),
		typed.Core().V1().Pods(), typed.Core().V1().Nodes(), client, flowcontrol.NewBackOff(time.Second, time.Minute))
	if err != nil {
		return fmt.Errorf("daemon sets: %w", err)
	}
	deployments, err := deployment.NewDeploymentController(ctx, typed.Apps().V1().Deployments(), typed.Apps().V1().ReplicaSets(),
		typed.Core().V1().Pods(), client)
	if err != nil {
		return fmt.Errorf("deployments: %w", err)
	}
	replicas := replicaset.NewReplicaSetController(ctx, typed.Apps().V1().ReplicaSets(), typed.Core().V1().Pods(), client,
		replicaset.BurstReplicas)
	claims, err := resourceclaim.NewController(klog.FromContext(ctx), resourceclaim.Features{AdminAccess: true, PrioritizedList: true},
		client, typed.Core().V1().Pods(), typed.Scheduling().V1alpha2().PodGroups(), typed.Resource().V1().ResourceClaims(),
		typed.Resource().V1().ResourceClaimTemplates())
	if err != nil {
		return fmt.Errorf("claims: %w", err)
	}
	policies, err := validatingadmissionpolicystatus.NewController(typed.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), &validating.TypeChecker{RestMapper: mapper,
			SchemaResolver: resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, scheme.Scheme, apiextensionsscheme.Scheme).
				Combine(&resolver.ClientDiscoveryResolver{Discovery: client.Discovery()})})
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, loose, mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(typed, untyped), started)
	garbage, err := garbagecollector.NewComposedGarbageCollector(ctx, client, loose, mapper, graph)
	if err != nil {
		return fmt.Errorf("garbage: %w", err)
	}
	for _, run := range []func(context.Context, int){accounts.Run, daemons.Run, deployments.Run, replicas.Run, claims.Run, policies.Run,
		func(ctx context.Context, workers int) { garbage.Run(ctx, workers, time.Second) },
		func(ctx context.Context, _ int) { garbage.Sync(ctx, client.Discovery(), 30*time.Second) }} {
		go run(ctx, workers)
	}
	typed.Start(ctx.Done())
	untyped.Start(ctx.Done())
	close(started)
	<-ctx.Done()
	return nil
}
