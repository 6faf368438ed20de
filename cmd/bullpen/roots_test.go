package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const envVerify = "BULLPEN_TEST_VERIFY"

// TestRoots_ComeWithTheBinary verifies certificates as in a container of the image, where the system has none, and as in one with a mounted
// bundle. Roots are read once per process, so this test starts itself again.
func TestRoots_ComeWithTheBinary(t *testing.T) {
	if file := os.Getenv(envVerify); file != "" {
		require.NoError(t, verify(file))
		return
	}
	dir := t.TempDir()
	mozilla, own, nothing := filepath.Join(dir, "mozilla.pem"), filepath.Join(dir, "own.pem"), filepath.Join(dir, "nothing")
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			writeCertificate(t, mozilla, root.Certificate)
			break
		}
	}
	writeCertificate(t, own, authority(t))
	trusts := func(certificate, system string) bool {
		child := exec.CommandContext(await.Context(t), os.Args[0], "-test.run=^TestRoots_ComeWithTheBinary$") //nolint:gosec // itself
		child.Env = append(os.Environ(), envVerify+"="+certificate, "SSL_CERT_FILE="+system, "SSL_CERT_DIR="+nothing)
		output, err := child.CombinedOutput()
		var exit *exec.ExitError
		require.True(t, err == nil || errors.As(err, &exit), "%v", err)
		if err != nil {
			require.Contains(t, string(output), "unknown authority")
		}
		return err == nil
	}
	require.True(t, trusts(mozilla, nothing), "GitHub is reached from an image that holds nothing but the binary")
	require.False(t, trusts(own, nothing))
	require.True(t, trusts(own, own), "a bundle that is mounted is used")
	require.False(t, trusts(mozilla, own), "and replaces what the binary brings")
}

func verify(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return fmt.Errorf("%s holds no certificate", file)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	_, err = certificate.Verify(x509.VerifyOptions{CurrentTime: certificate.NotBefore.Add(time.Hour), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

func writeCertificate(t *testing.T, file string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
}

func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(1_700_000_000, 0), NotAfter: time.Unix(4_000_000_000, 0),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return der
}
