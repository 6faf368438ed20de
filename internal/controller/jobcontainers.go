package controller

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/bullpen-ci/bullpen/internal/controller/jobcontainers"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

// JobContainersOptions configure what adds the containers of jobs to pods.
type JobContainersOptions struct {
	// Images looks up images. Required.
	Images jobcontainers.Images
	// KeyNamespace is where the Secret jobcontainers.KeySecret is. Required without Key.
	KeyNamespace string
	// Key opens requests; nil: the key of that Secret.
	Key *letter.PrivateKey
}

// keyTimeout bounds the requests for the key at the start.
const keyTimeout = 30 * time.Second

// setupJobContainers adds the controller, and returns the public key for pods. The key is read before there is a cache, because no pod may be
// made without it.
func setupJobContainers(mgr manager.Manager, options Options) (public string, err error) {
	o := options.JobContainers
	key := o.Key
	if key == nil {
		direct, err := client.New(unlimited(options.Config), client.Options{Scheme: mgr.GetScheme()})
		if err != nil {
			return "", fmt.Errorf("reading the key for job containers: %w", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
		defer cancel()
		if key, err = jobcontainers.LoadKey(ctx, direct, o.KeyNamespace); err != nil {
			return "", err
		}
	}
	return key.Public(), jobcontainers.Setup(mgr, jobcontainers.Options{
		Key: key, Images: o.Images, SelfRegistering: options.SelfRegistering != nil, Registry: options.Registry, Log: options.Log, Now: options.Now,
	})
}
