package controlplane

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func at(moment string) func() time.Time {
	return func() time.Time {
		parsed, err := time.Parse(time.DateOnly, moment)
		if err != nil {
			panic(err)
		}
		return parsed
	}
}

func parseCert(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	require.NotNil(t, block)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert
}

func verify(by *authority, leaf *x509.Certificate, when time.Time, usage x509.ExtKeyUsage) error {
	roots := x509.NewCertPool()
	roots.AddCert(by.parsed)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: when, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

func TestPKI_KeepsAuthoritiesAndRenewsTheRest(t *testing.T) {
	dir := t.TempDir()
	first, err := loadPKI(dir, at("2030-01-01"))
	require.NoError(t, err)
	key, err := os.ReadFile(first.path("sa.key"))
	require.NoError(t, err)

	later := at("2034-06-01")
	second, err := loadPKI(dir, later)
	require.NoError(t, err)
	require.Equal(t, first.cluster.cert, second.cluster.cert)
	require.Equal(t, first.etcd.cert, second.etcd.cert)
	sameKey, err := os.ReadFile(second.path("sa.key"))
	require.NoError(t, err)
	require.Equal(t, key, sameKey)

	require.Error(t, verify(second.cluster, parseCert(t, first.admin.cert), later(), x509.ExtKeyUsageClientAuth), "the old one has expired")
	require.NoError(t, verify(second.cluster, parseCert(t, second.admin.cert), later(), x509.ExtKeyUsageClientAuth))
	serving, err := os.ReadFile(second.path("apiserver.crt"))
	require.NoError(t, err)
	require.NoError(t, verify(second.cluster, parseCert(t, serving), later(), x509.ExtKeyUsageServerAuth))
	require.NoError(t, parseCert(t, serving).VerifyHostname("127.0.0.1"))
}

func TestPKI_NoIdentityOfTheClusterOpensTheDatabase(t *testing.T) {
	made, err := loadPKI(t.TempDir(), at("2030-01-01"))
	require.NoError(t, err)
	require.NoError(t, verify(made.cluster, parseCert(t, made.admin.cert), at("2030-01-02")(), x509.ExtKeyUsageClientAuth))
	require.Error(t, verify(made.etcd, parseCert(t, made.admin.cert), at("2030-01-02")(), x509.ExtKeyUsageClientAuth))
}

func TestPKI_FilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	_, err := loadPKI(dir, at("2030-01-01"))
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), entry.Name())
	}
}

func TestPKI_StartsOverAfterAStartThatWasCutShort(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.key"), []byte("half"), 0o600))
	_, err := loadPKI(dir, at("2030-01-01"))
	require.NoError(t, err)
}

func TestPKI_RefusesWhatItCannotUse(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"not PEM": func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("nonsense"), 0o600))
		},
		"a key of something else": func(t *testing.T, dir string) {
			other, err := os.ReadFile(filepath.Join(dir, "etcd-ca.key"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.key"), other, 0o600))
		},
		"no key": func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "ca.key"))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := loadPKI(dir, at("2030-01-01"))
			require.NoError(t, err)
			spoil(t, dir)
			_, err = loadPKI(dir, at("2030-01-01"))
			require.ErrorContains(t, err, "reading the certificate authority")
		})
	}

	dir := t.TempDir()
	_, err := loadPKI(dir, at("2030-01-01"))
	require.NoError(t, err)
	_, err = loadPKI(dir, at("2041-01-01"))
	require.ErrorContains(t, err, "expired")
	require.ErrorContains(t, err, "remove the state directory")
}

func TestWriteKubeconfig_RoundTripsAndIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.kubeconfig")
	want := &rest.Config{Host: "https://127.0.0.1:1234", BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{
		CAData: []byte("ca"), CertData: []byte("cert"), KeyData: []byte("key"),
	}}
	require.NoError(t, WriteKubeconfig(path, want))

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	got, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	require.Equal(t, want.Host, got.Host)
	require.Equal(t, want.BearerToken, got.BearerToken)
	require.Equal(t, want.CAData, got.CAData)
	require.Equal(t, want.CertData, got.CertData)
	require.Equal(t, want.KeyData, got.KeyData)
}
