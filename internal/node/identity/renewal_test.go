//go:build !race

package identity_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/node/identity"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// Not for the race detector: client-go's dynamicClientCert.loadClientCert (transport/cert_rotation.go, v0.36) returns its field after it
// has released the lock. It returns one of two valid certificates either way, but the detector reports a dial that replaces it. `make test`
// runs this package without it.

// Long before it expires a certificate is replaced, by a request that it signs itself: the bootstrap token is gone by then.
func TestOpen_NET5_ACertificateRenewsItself(t *testing.T) {
	// The signer backdates by five minutes. So a certificate that has some seconds left has used up most of its time at once.
	f := newFixture(t, kit.Private(t, func(o *controlplane.Options) {
		o.ExtraArgs = map[controlplane.Component][]string{controlplane.ControllerManager: {"--cluster-signing-duration=15s"}}
	}))
	bootstrap := f.bootstrap("renew1")
	own := f.open(identity.Options{Name: "mac-2", Bootstrap: bootstrap, Dir: t.TempDir()})
	first := own.Current().Leaf
	client := f.kube(own.Config())
	f.revoke("renew1", bootstrap)
	require.Eventually(t, func() bool {
		current := own.Current()
		return current != nil && current.Leaf.SerialNumber.Cmp(first.SerialNumber) != 0 && len(f.requests("mac-2")) > 0
	}, patience, 10*time.Millisecond)
	// One client goes on, beyond the end of the certificate that it began with.
	require.Eventually(t, func() bool {
		_, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err == nil && time.Now().After(first.NotAfter.Add(time.Second))
	}, patience, 100*time.Millisecond)
	f.confined(own.Config(), "mac-2")
}
