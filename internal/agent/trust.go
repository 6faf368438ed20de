package agent

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// fileTrusted, in the status directory, holds what the runner and its jobs trust.
const fileTrusted = "ca-certificates.crt"

// systemBundles are where distributions keep the certificates that they trust, as one file each.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, Alpine
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/pki/tls/certs/ca-bundle.crt", // Fedora, RHEL
	"/etc/ssl/ca-bundle.pem",           // SUSE
	"/etc/ssl/cert.pem",
}

// Variables by which tools find certificates. Those of replacing tools take the place of the system's, so they name a file that has both.
const envAlsoTrusted = "NODE_EXTRA_CA_CERTS" // JavaScript actions: beside those of Node.js

var envTrusted = []string{
	"SSL_CERT_FILE",      // GitHub's runner, as .NET has it; OpenSSL, Go, Ruby
	"GIT_SSL_CAINFO",     // git, and so actions/checkout
	"CURL_CA_BUNDLE",     // curl
	"REQUESTS_CA_BUNDLE", // Python's requests, pip
}

// trusting is the environment of a runner that trusts the certificates in CAFile beside those of its image. A variable that is set stays: the
// template or the image has chosen.
func (s *supervisor) trusting(environ []string) ([]string, error) {
	if s.CAFile == "" {
		return environ, nil
	}
	extra, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, err
	}
	system, err := systemCertificates(s.SystemBundles)
	if err != nil {
		return nil, err
	}
	trusted := filepath.Join(s.files.status(), fileTrusted)
	if err := os.WriteFile(trusted, joinPEM(system, extra), 0o644); err != nil { //nolint:gosec // certificates, which every process of a job reads
		return nil, err
	}
	environ = unlessSet(environ, envAlsoTrusted, s.CAFile)
	for _, name := range envTrusted {
		environ = unlessSet(environ, name, trusted)
	}
	return environ, nil
}

// systemCertificates is the first bundle there is; nothing in an image that has none.
func systemCertificates(bundles []string) ([]byte, error) {
	for _, bundle := range bundles {
		content, err := os.ReadFile(bundle)
		if err == nil {
			return content, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, nil
}

// joinPEM keeps the end of one file apart from the beginning of the next.
func joinPEM(files ...[]byte) []byte {
	var all bytes.Buffer
	for _, file := range files {
		if file = bytes.TrimSpace(file); len(file) > 0 {
			all.Write(file)
			all.WriteByte('\n')
		}
	}
	return all.Bytes()
}

func unlessSet(environ []string, name, value string) []string {
	for _, entry := range environ {
		if strings.HasPrefix(entry, name+"=") {
			return environ
		}
	}
	return append(environ, name+"="+value)
}
