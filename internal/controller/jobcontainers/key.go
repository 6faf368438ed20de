package jobcontainers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

// KeySecret is the Secret in the controller's namespace with the key that opens requests. The chart makes it empty, and the first controller
// fills it. Without its key, runners that were made before are replaced, and the requests of busy ones are refused.
const KeySecret = "bullpen-job-containers"

const keyOfSecret = "private-key"

// LoadKey reads the key, and makes it if there is none. Controllers that start at once agree on one.
func LoadKey(ctx context.Context, c client.Client, namespace string) (*letter.PrivateKey, error) {
	name := types.NamespacedName{Namespace: namespace, Name: KeySecret}
	for range 3 {
		var secret corev1.Secret
		if err := c.Get(ctx, name, &secret); err != nil {
			if apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("reading the key for job containers: no Secret %s: install the chart with jobContainers.enabled=true, or create an empty Secret of that name", name)
			}
			return nil, fmt.Errorf("reading the key for job containers: %w", err)
		}
		if seed := secret.Data[keyOfSecret]; len(seed) > 0 {
			key, err := letter.ParsePrivateKey(seed)
			if err != nil {
				return nil, fmt.Errorf("secret %s: %w: delete its key %s, and a new one is made", name, err, keyOfSecret)
			}
			return key, nil
		}
		key, err := letter.NewPrivateKey()
		if err != nil {
			return nil, err
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[keyOfSecret] = key.Bytes()
		err = c.Update(ctx, &secret) // with its resource version: another controller may be doing the same
		if err == nil {
			return key, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("storing the key for job containers: %w", withoutContent(err))
		}
	}
	return nil, fmt.Errorf("storing the key for job containers: Secret %s changes all the time", name)
}
