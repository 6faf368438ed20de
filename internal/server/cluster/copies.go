package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
)

// CopyName is the ConfigMap that holds the copy of the ledger's epoch, in the server's own namespace (CLAIM-17).
const CopyName = "bullpen-ledger"

// Keys of the ConfigMap.
const (
	keyLineage = "lineage"
	keyEpoch   = "epoch"
)

// Copies keeps the copy of the ledger's epoch. It is for one goroutine.
type Copies struct {
	client    kubernetes.Interface
	namespace string
	last      *corev1.ConfigMap // as it was read; nil: there was none
}

var _ epoch.Copies = (*Copies)(nil)

// NewCopies makes no request yet.
func NewCopies(config *rest.Config, namespace string) (*Copies, error) {
	if config == nil || namespace == "" {
		return nil, errors.New("the copy of the ledger's epoch needs a client configuration and the server's own namespace")
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	return &Copies{client: client, namespace: namespace}, nil
}

// ReadCopy reads it past every cache. A malformed one cannot be read: its content is unknown.
func (c *Copies) ReadCopy(ctx context.Context) (epoch.Mark, bool, error) {
	found, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, CopyName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.last = nil
		return epoch.Mark{}, false, nil
	}
	if err != nil {
		return epoch.Mark{}, false, fmt.Errorf("reading the ConfigMap %s/%s: %w", c.namespace, CopyName, err)
	}
	c.last = found
	mark, err := parseCopy(found.Data)
	if err != nil {
		return epoch.Mark{}, false, fmt.Errorf("reading the ConfigMap %s/%s: %w", c.namespace, CopyName, err)
	}
	return mark, true, nil
}

func parseCopy(data map[string]string) (epoch.Mark, error) {
	n, err := strconv.ParseInt(data[keyEpoch], 10, 64)
	if err != nil || n <= 0 || data[keyLineage] == "" {
		return epoch.Mark{}, errors.New("it has no lineage and epoch of a ledger; if it was edited manually, delete it: the ledger is then frozen for a while")
	}
	return epoch.Mark{Lineage: data[keyLineage], Epoch: n}, nil
}

// WriteCopy replaces what was read last, and nothing else: a replica that has written in between wins.
func (c *Copies) WriteCopy(ctx context.Context, m epoch.Mark) error {
	data := map[string]string{keyLineage: m.Lineage, keyEpoch: strconv.FormatInt(m.Epoch, 10)}
	var written *corev1.ConfigMap
	var err error
	if c.last == nil {
		written, err = c.client.CoreV1().ConfigMaps(c.namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: CopyName, Namespace: c.namespace}, Data: data,
		}, metav1.CreateOptions{})
	} else {
		next := c.last.DeepCopy()
		next.Data = data
		written, err = c.client.CoreV1().ConfigMaps(c.namespace).Update(ctx, next, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil // another replica's is as good, and the next check uses it
	}
	if err != nil {
		return fmt.Errorf("writing the ConfigMap %s/%s: %w", c.namespace, CopyName, err)
	}
	c.last = written
	return nil
}
