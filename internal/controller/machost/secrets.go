package machost

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/machost"
)

// secretsKept is how long a Secret is cached. Secrets are not watched: the controller may get the few that its role names, and list none
// (NET-8). Many MacHosts share them.
const secretsKept = 30 * time.Second

// secrets reads Secrets of one namespace, past the cache, each once in a while. It is safe for concurrent use.
type secrets struct {
	reader    client.Reader
	namespace string
	now       func() time.Time

	mu   sync.Mutex
	kept map[string]keptSecret
}

type keptSecret struct {
	read    time.Time
	secret  *corev1.Secret
	problem *problem
}

// value is one key of a Secret, and the version that it is of: it says nothing about the value, and changes with every write.
type value struct {
	Secret  machost.Secret
	Version string
}

// get reads one key. A problem needs an administrator; any other failure is an error, and is retried.
func (s *secrets) get(ctx context.Context, ref v1alpha1.SecretKey) (value, *problem, error) {
	kept, err := s.read(ctx, ref.Name)
	if err != nil || kept.problem != nil {
		return value{}, kept.problem, err
	}
	data, has := kept.secret.Data[ref.Key]
	if !has || len(data) == 0 {
		return value{}, &problem{StateSecretMissing, fmt.Sprintf("the Secret %s in namespace %s has no key %s: add it", ref.Name, s.namespace, ref.Key)}, nil
	}
	return value{machost.NewSecret(string(data)), string(kept.secret.UID) + "/" + kept.secret.ResourceVersion}, nil, nil
}

func (s *secrets) read(ctx context.Context, name string) (keptSecret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept, known := s.kept[name]; known && s.now().Sub(kept.read) < secretsKept {
		return kept, nil
	}
	var secret corev1.Secret
	kept := keptSecret{read: s.now()}
	switch err := s.reader.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: name}, &secret); {
	case err == nil:
		kept.secret = &secret
	case apierrors.IsNotFound(err):
		kept.problem = &problem{StateSecretMissing, fmt.Sprintf("the Secret %s in namespace %s does not exist: create it", name, s.namespace)}
	case apierrors.IsForbidden(err):
		kept.problem = &problem{StateSecretForbidden, fmt.Sprintf("the controller may not read the Secret %s in namespace %s: add its name to the chart's value macHosts.secrets", name, s.namespace)}
	default:
		return keptSecret{}, fmt.Errorf("reading the Secret %s: %w", name, err)
	}
	if s.kept == nil || len(s.kept) > 1000 {
		s.kept = map[string]keptSecret{}
	}
	s.kept[name] = kept
	return kept, nil
}
