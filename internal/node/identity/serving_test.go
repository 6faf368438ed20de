package identity_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/node/identity"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// served is the certificate that a node serves with now.
func served(t *testing.T, s *identity.Serving) *tls.Certificate {
	t.Helper()
	now, err := s.Certificate(nil)
	require.NoError(t, err)
	return now
}

// A node serves with a self-signed certificate until its request is approved, which no controller does; then with the signed one, also
// after a restart.
func TestServing_SelfSignedUntilApproved(t *testing.T) {
	env := kit.Cluster(t)
	options := identity.ServingOptions{
		Name: "mac-9", Address: net.IPv4(192, 0, 2, 9), Config: env.As(t, identity.UserPrefix+"mac-9", identity.Group), Dir: t.TempDir(),
	}
	serving, err := identity.OpenServing(options)
	require.NoError(t, err)
	defer serving.Close()
	own := served(t, serving)
	var request *certificatesv1.CertificateSigningRequest
	require.Eventually(t, func() bool {
		list, err := env.Kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		for i := range list.Items {
			if list.Items[i].Spec.Username == identity.UserPrefix+"mac-9" {
				request = &list.Items[i]
			}
		}
		return err == nil && request != nil
	}, patience, 20*time.Millisecond)
	require.Equal(t, certificatesv1.KubeletServingSignerName, request.Spec.SignerName)
	require.False(t, serving.Signed())
	require.Equal(t, own, served(t, serving))

	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	}}
	_, err = env.Kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), request.Name, request, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, serving.Signed, patience, 20*time.Millisecond)
	leaf := served(t, serving).Leaf
	require.Equal(t, []string{"mac-9"}, leaf.DNSNames)
	require.Len(t, leaf.IPAddresses, 1)
	require.True(t, leaf.IPAddresses[0].Equal(options.Address))
	serving.Close()

	again, err := identity.OpenServing(options)
	require.NoError(t, err)
	defer again.Close()
	require.True(t, again.Signed())
	require.Equal(t, leaf.SerialNumber, served(t, again).Leaf.SerialNumber)
}

// Files are read again when they change, and unusable content leaves the previous one in use.
func TestFiles_AreReadAgain(t *testing.T) {
	env := kit.Cluster(t)
	dir := t.TempDir()
	cert, key, ca := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem"), filepath.Join(dir, "ca.pem")
	_, err := identity.FromFiles(cert, key)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = identity.AuthoritiesFromFile(ca)
	require.ErrorIs(t, err, os.ErrNotExist)
	write := func(file string, text []byte) {
		next := file + ".next" // as programs that renew certificates do
		require.NoError(t, os.WriteFile(next, text, 0o600))
		require.NoError(t, os.Rename(next, file))
	}
	first, second := env.As(t, "first"), env.As(t, "second")
	write(cert, first.CertData)
	write(key, first.KeyData)
	write(ca, first.CAData)
	current, err := identity.FromFiles(cert, key)
	require.NoError(t, err)
	roots, err := identity.AuthoritiesFromFile(ca)
	require.NoError(t, err)
	name := func() string {
		pair, err := current(nil)
		require.NoError(t, err)
		return pair.Leaf.Subject.CommonName
	}
	require.Equal(t, "first", name())
	write(cert, second.CertData)
	require.Equal(t, "first", name(), "a certificate without its key")
	write(key, second.KeyData)
	require.Equal(t, "second", name())
	trusted := roots()
	write(ca, []byte("no PEM"))
	require.True(t, trusted.Equal(roots()))
	write(ca, second.CertData)
	require.False(t, trusted.Equal(roots()))
}
