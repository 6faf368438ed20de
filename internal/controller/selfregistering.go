package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/bullpen-ci/bullpen/internal/controller/jobcontainers"
	"github.com/bullpen-ci/bullpen/internal/controller/nodeload"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/controller/pool"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runner"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerdeployment"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerreplicaset"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerscaler"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerset"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// SelfRegisteringOptions configure what looks after runners that register themselves.
type SelfRegisteringOptions struct {
	// App is the installation's own GitHub App, for runners without credentials of their own; nil where there is none.
	App *github.Client
	// GitHub is what clients with other credentials have in common: see registration.HubOptions.
	GitHub github.Options
	// Keep reloads the App's key when its file changes, until ctx ends; nil: the key is read once.
	Keep func(ctx context.Context)
}

// secrets reads credentials past the cache: the controller watches no Secret's content.
type secrets struct{ reader client.Reader }

// Secret implements registration.Secrets.
func (s secrets) Secret(ctx context.Context, namespace, name string) (map[string][]byte, string, error) {
	var secret corev1.Secret
	err := s.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, "", registration.ErrNoSecret
	}
	return secret.Data, string(secret.UID) + "/" + secret.ResourceVersion, err
}

// keeper runs Keep on every replica: one that becomes the leader must have the key of now.
type keeper func(ctx context.Context)

// Start implements manager.Runnable.
func (k keeper) Start(ctx context.Context) error {
	k(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (k keeper) NeedLeaderElection() bool { return false }

// setupSelfRegistering adds the controllers of the four kinds.
func setupSelfRegistering(mgr manager.Manager, taints nodes.Taints, loads *nodeload.Book, options Options) error {
	o := options.SelfRegistering
	hub, err := registration.NewHub(registration.HubOptions{
		Secrets: secrets{mgr.GetAPIReader()}, App: o.App, GitHub: o.GitHub, Registerer: options.Registry, Now: options.Now,
	})
	if err != nil {
		return err
	}
	if o.Keep != nil {
		if err := mgr.Add(keeper(o.Keep)); err != nil {
			return fmt.Errorf("adding the keeper of the App's key: %w", err)
		}
	}
	roster, err := registration.NewRoster(registration.RosterOptions{Registrars: hub, Now: options.Now})
	if err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(roster.Start)); err != nil {
		return fmt.Errorf("adding the roster of runners: %w", err)
	}
	service, err := registered.Setup(mgr, registered.Options{
		Registrars: hub, Roster: roster, Pod: options.Pod, DisruptionTaints: &taints, Loads: loads, Registry: options.Registry, Log: options.Log, Now: options.Now,
	})
	if err != nil {
		return err
	}
	return errors.Join(
		runner.Setup(mgr, runner.Options{Service: service, Pod: options.Pod, Log: options.Log, Now: options.Now}),
		runnerreplicaset.Setup(mgr, runnerreplicaset.Options{
			Service: service, Pod: options.Pod, Registry: options.Registry, Log: options.Log, Now: options.Now,
		}),
		runnerset.Setup(mgr, runnerset.Options{
			Service: service, Pod: options.Pod, Registry: options.Registry, Log: options.Log, Now: options.Now,
		}),
		runnerdeployment.Setup(mgr, runnerdeployment.Options{Pod: options.Pod, Log: options.Log, Now: options.Now}),
		runnerscaler.Setup(mgr, runnerscaler.Options{
			Source: options.Server, Queue: hub, Namespace: options.Namespace, Registry: options.Registry, Log: options.Log, Now: options.Now,
		}),
	)
}

// trimPod removes the fields of a pod that are not read of its kind, before it enters the cache (P8).
func trimPod(object any) (any, error) {
	pod, is := object.(*corev1.Pod)
	trim := pool.TrimPod
	if is && pod.Labels[runnerpod.LabelSelfRegistering] == "true" {
		trim = registered.TrimPod
	}
	trimmed, err := trim(object)
	if small, trims := trimmed.(*corev1.Pod); is && trims && small != pod {
		jobcontainers.Keep(pod, small)
	}
	return trimmed, err
}
