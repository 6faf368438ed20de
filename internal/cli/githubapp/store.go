package githubapp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/bullpen-ci/bullpen/internal/github"
)

// Names in the Secret, which are also those of the files: github.secret.privateKeyKey and webhookSecretKey of the chart.
const (
	KeyPrivateKey    = "private-key.pem"
	KeyWebhookSecret = "webhook-secret"
)

// ErrExists: the place holds credentials, which are kept.
var ErrExists = errors.New("credentials of a GitHub App exist there")

// Store keeps the credentials of an App.
type Store interface {
	// Check finds what would make Save fail, before there is an App: GitHub shows a private key once. ErrExists: the place is taken.
	Check(ctx context.Context) error
	// Save writes the credentials, and overwrites none.
	Save(ctx context.Context, app github.CreatedApp) error
	// String names the place.
	String() string
}

// contents are the credentials by their names.
func contents(app github.CreatedApp) map[string][]byte {
	out := map[string][]byte{KeyPrivateKey: []byte(app.PrivateKey.Reveal())}
	if secret := app.WebhookSecret.Reveal(); secret != "" {
		out[KeyWebhookSecret] = []byte(secret)
	}
	return out
}

// InSecret keeps them in a Secret of a cluster.
type InSecret struct {
	Client          kubernetes.Interface
	Namespace, Name string
	Cluster         string // address of its API server, for people
}

// String names the Secret.
func (s InSecret) String() string {
	return "Secret " + s.Namespace + "/" + s.Name + " of the cluster " + s.Cluster
}

func (s InSecret) secret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}, Type: corev1.SecretTypeOpaque, Data: data}
}

// Check creates the Secret as a dry run, so that the namespace, the rights and the admission policies are those of Save.
func (s InSecret) Check(ctx context.Context) error {
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err := s.Client.CoreV1().Secrets(s.Namespace).Create(ctx, s.secret(map[string][]byte{KeyPrivateKey: []byte("none yet")}), dry)
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s: %w. Name another Secret with --secret-name, or delete this one if its App is not used any more", s, ErrExists)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("creating %s: %w. Create the namespace first: kubectl create namespace %s", s, err, s.Namespace)
	default:
		return fmt.Errorf("creating %s: %w. Use --output-dir to write files instead", s, err)
	}
}

// Save creates the Secret. A cluster that does not answer is asked again for some seconds.
func (s InSecret) Save(ctx context.Context, app github.CreatedApp) error {
	backoff := wait.Backoff{Steps: 6, Duration: 250 * time.Millisecond, Factor: 2}
	transient := func(err error) bool {
		return !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil
	}
	err := retry.OnError(backoff, transient, func() error {
		_, err := s.Client.CoreV1().Secrets(s.Namespace).Create(ctx, s.secret(contents(app)), metav1.CreateOptions{})
		return err
	})
	if apierrors.IsAlreadyExists(err) && s.holds(ctx, app) {
		return nil // by an attempt whose answer was lost
	}
	if err != nil {
		return fmt.Errorf("creating %s: %w", s, err)
	}
	return nil
}

func (s InSecret) holds(ctx context.Context, app github.CreatedApp) bool {
	found, err := s.Client.CoreV1().Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	return err == nil && bytes.Equal(found.Data[KeyPrivateKey], []byte(app.PrivateKey.Reveal()))
}

// InDirectory keeps them in files that their owner alone may read.
type InDirectory struct{ Path string }

// String names the directory.
func (d InDirectory) String() string { return "directory " + d.Path }

// Check makes the directory, and writes a file to it.
func (d InDirectory) Check(context.Context) error {
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return fmt.Errorf("creating %s: %w", d, err)
	}
	for _, name := range []string{KeyPrivateKey, KeyWebhookSecret} {
		if _, err := os.Lstat(filepath.Join(d.Path, name)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w (%s). Name another directory with --output-dir", d, ErrExists, name)
		}
	}
	probe, err := os.CreateTemp(d.Path, ".bullpen-*")
	if err != nil {
		return fmt.Errorf("writing to %s: %w", d, err)
	}
	_ = probe.Close() // it is empty
	if err := os.Remove(probe.Name()); err != nil {
		return fmt.Errorf("writing to %s: %w", d, err)
	}
	return nil
}

// Save writes a file for each.
func (d InDirectory) Save(_ context.Context, app github.CreatedApp) error {
	for name, content := range contents(app) {
		if err := writeNew(filepath.Join(d.Path, name), content); err != nil {
			return fmt.Errorf("writing to %s: %w", d, err)
		}
	}
	return nil
}

// writeNew writes a file that is not there yet, with the mode from the first byte on.
func writeNew(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
