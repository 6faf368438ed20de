package ledger

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/postgres"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func certificate(t *testing.T, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (cert *x509.Certificate, key *ecdsa.PrivateKey, certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	if signer == nil {
		parent, signer = template, key
	}
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(t, err)
	cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t: t}
	a.cert, a.key, a.pem, _ = certificate(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	return a
}

func (a authority) sign(template x509.Certificate) (certPEM, keyPEM []byte) {
	a.t.Helper()
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	_, _, certPEM, keyPEM = certificate(a.t, &template, a.cert, a.key)
	return certPEM, keyPEM
}

// encrypted is a real PostgreSQL that takes connections by TLS only, at the name localhost, from those who know the password
// and, for the user "bullpen" of the database "template1", have a certificate.
type encrypted struct {
	t      *testing.T
	dir    string // of the client
	server string // of the server, where its files are
	port   int
	pass   string
	local  string // around TLS
}

func startEncrypted(t *testing.T, by authority) *encrypted {
	t.Helper()
	dir, err := os.MkdirTemp("", "bullpen-tls-") // as the account that PostgreSQL runs as can enter it
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e := &encrypted{t: t, dir: t.TempDir(), server: filepath.Join(dir, "server")}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address, ok := listener.Addr().(*net.TCPAddr)
	require.True(t, ok)
	e.port = address.Port
	require.NoError(t, listener.Close())
	certs := filepath.Join(dir, "certs")
	require.NoError(t, os.Mkdir(certs, 0o755))
	options := postgres.Options{Dir: e.server, FastUnsafe: true, MaxConnections: 20}
	first, err := postgres.Start(t.Context(), options) // makes the directory, of the account that PostgreSQL runs as
	require.NoError(t, err)
	require.NoError(t, first.Stop(t.Context()))
	cert, key := by.sign(x509.Certificate{DNSNames: []string{"localhost"}})
	e.serverFile("server.crt", cert)
	e.serverFile("server.key", key)
	e.serverFile("clients.crt", by.pem)
	e.serverFile("hba.conf", []byte("local all all scram-sha-256\nhostssl template1 all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n"+
		"hostssl all all 127.0.0.1/32 scram-sha-256\n"))
	options.Settings = []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(e.port), "ssl=on", "ssl_cert_file=" + filepath.Join(e.server, "server.crt"),
		"ssl_key_file=" + filepath.Join(e.server, "server.key"), "ssl_ca_file=" + filepath.Join(e.server, "clients.crt"),
		"hba_file=" + filepath.Join(e.server, "hba.conf"),
	}
	server, err := postgres.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	local, err := url.Parse(server.URL())
	require.NoError(t, err)
	e.pass, _ = local.User.Password()
	e.local = server.URL() + "&port=" + strconv.Itoa(e.port)
	return e
}

// serverFile is one that only the account of the server may read.
func (e *encrypted) serverFile(name string, content []byte) {
	e.t.Helper()
	info, err := os.Stat(e.server)
	require.NoError(e.t, err)
	owner, ok := info.Sys().(*syscall.Stat_t)
	require.True(e.t, ok)
	path := filepath.Join(e.server, name)
	require.NoError(e.t, os.WriteFile(path, content, 0o600))
	require.NoError(e.t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
}

// clientFile is one of ours; it replaces another at once, as a kubelet does.
func (e *encrypted) clientFile(name string, content []byte) string {
	e.t.Helper()
	path := filepath.Join(e.dir, name)
	require.NoError(e.t, os.WriteFile(path+".new", content, 0o600))
	require.NoError(e.t, os.Rename(path+".new", path))
	return path
}

func (e *encrypted) url(host, database string) string {
	return fmt.Sprintf("postgres://bullpen:%s@%s:%d/%s?sslmode=disable", e.pass, host, e.port, database)
}

// open connects as a server of ours does.
func (e *encrypted) open(host, database string, with TLS) error {
	e.t.Helper()
	target, err := with.URL(e.url(host, database))
	require.NoError(e.t, err)
	pool, err := OpenPool(e.t.Context(), target, 2)
	if err == nil {
		defer pool.Close()
		var version string
		require.NoError(e.t, pool.QueryRow(e.t.Context(), "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl").Scan(&version))
		require.Contains(e.t, version, "TLS")
		return nil
	}
	require.NotContains(e.t, err.Error(), e.pass)
	_, alone := connect(e.t.Context(), target) // what listens and migrates
	require.Error(e.t, alone)
	for _, kind := range []error{ErrUntrusted, ErrRefused, ErrUnreachable} {
		require.Equal(e.t, errors.Is(err, kind), errors.Is(alone, kind), "%v", alone)
	}
	return err
}

// NET-5: the database authenticates itself before it gets a password, on every connection, and a URL does not weaken that.
func TestOpenPool_NET5_TheDatabaseProvesWhatItIs(t *testing.T) {
	mine, strange := newAuthority(t), newAuthority(t)
	e := startEncrypted(t, mine)
	ca := e.clientFile("ca.crt", mine.pem)

	require.NoError(t, e.open("localhost", "bullpen", TLS{CAFile: ca}))
	err := e.open("127.0.0.1", "bullpen", TLS{CAFile: ca})
	require.ErrorIs(t, err, ErrUntrusted)
	require.ErrorContains(t, err, "not for 127.0.0.1")
	err = e.open("localhost", "bullpen", TLS{CAFile: e.clientFile("strange.crt", strange.pem)})
	require.ErrorIs(t, err, ErrUntrusted)
	require.ErrorContains(t, err, "another authority")
	require.NotErrorIs(t, err, ErrUnreachable)

	// Without it Postgres itself refuses what is not encrypted.
	require.ErrorIs(t, e.open("localhost", "bullpen", TLS{}), ErrRefused)
	wrong := *e
	wrong.pass = "not-the-password"
	require.ErrorIs(t, wrong.open("localhost", "bullpen", TLS{CAFile: ca}), ErrRefused)

	// A certificate of ours, where the database asks for one.
	cert, key := mine.sign(x509.Certificate{Subject: pkix.Name{CommonName: "bullpen"}})
	with := TLS{CAFile: ca, CertFile: e.clientFile("own.crt", cert), KeyFile: e.clientFile("own.key", key)}
	require.NoError(t, e.open("localhost", "template1", with))
	require.ErrorIs(t, e.open("localhost", "template1", TLS{CAFile: ca}), ErrRefused)
	cert, key = strange.sign(x509.Certificate{Subject: pkix.Name{CommonName: "bullpen"}})
	with.CertFile, with.KeyFile = e.clientFile("bad.crt", cert), e.clientFile("bad.key", key)
	require.Error(t, e.open("localhost", "template1", with))

	rotate(t, e, strange)
}

// rotate gives the database a certificate of another authority, while a pool is in use: existing connections continue,
// new ones read the new authority.
func rotate(t *testing.T, e *encrypted, next authority) {
	t.Helper()
	ca := filepath.Join(e.dir, "ca.crt")
	target, err := TLS{CAFile: ca}.URL(e.url("localhost", "bullpen"))
	require.NoError(t, err)
	pool, err := OpenPool(t.Context(), target, 8)
	require.NoError(t, err)
	defer pool.Close()
	held, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer held.Release()

	former, err := os.ReadFile(ca)
	require.NoError(t, err)
	e.clientFile("ca.crt", append(former, next.pem...)) // both, as in any rotation of an authority
	cert, key := next.sign(x509.Certificate{DNSNames: []string{"localhost"}})
	e.serverFile("server.crt", cert)
	e.serverFile("server.key", key)
	admin, err := pgx.Connect(t.Context(), e.local)
	require.NoError(t, err)
	defer func() { _ = admin.Close(context.Background()) }()
	_, err = admin.Exec(t.Context(), "SELECT pg_reload_conf()")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return e.served(next) }, patience, interval)

	fresh, err := pool.Acquire(t.Context())
	require.NoError(t, err, "a new connection reads the new authority")
	require.NoError(t, fresh.Conn().Close(t.Context()))
	fresh.Release()
	require.NoError(t, held.Ping(t.Context()), "one that exists is left alone")

	// A broken file leaves new connections with what was there before.
	e.clientFile("ca.crt", []byte("hunter2"))
	require.ErrorContains(t, TLS{CAFile: ca}.Check(), "no certificate")
	fresh, err = pool.Acquire(t.Context())
	require.NoError(t, err)
	fresh.Release()

	e.clientFile("ca.crt", former) // the rotation is taken back, and the database's certificate is not
	for _, idle := range pool.AcquireAllIdle(t.Context()) {
		_ = idle.Conn().Close(t.Context())
		idle.Release()
	}
	_, err = pool.Acquire(t.Context())
	require.ErrorIs(t, notConnected("localhost", err), ErrUntrusted)
}

// served reports whether new connections are shown a certificate of that authority.
func (e *encrypted) served(by authority) bool {
	target := e.clientFile("seen.crt", by.pem)
	conn, err := connect(e.t.Context(), mustURL(e.t, TLS{CAFile: target}, e.url("localhost", "bullpen")))
	if err != nil {
		return false
	}
	return conn.Close(e.t.Context()) == nil
}

func mustURL(t *testing.T, with TLS, target string) string {
	t.Helper()
	made, err := with.URL(target)
	require.NoError(t, err)
	return made
}

func TestTLS_URLIsNotWeakenedByWhatItWas(t *testing.T) {
	a := newAuthority(t)
	dir := t.TempDir()
	ca := filepath.Join(dir, "it's a ca.crt")
	require.NoError(t, os.WriteFile(ca, a.pem, 0o600))
	for _, was := range []string{
		"postgres://u:p%3Fw@h.example.com/d?sslmode=disable&application_name=x&sslrootcert=/etc/other&sslsni=0", "postgresql://u@h.example.com/d?ssl=true",
		"postgres://u@h.example.com/d", "host=h.example.com user=u password='p w' dbname=d sslmode=disable",
	} {
		cfg, err := parse(mustURL(t, TLS{CAFile: ca}, was))
		require.NoError(t, err)
		require.Equal(t, "d", cfg.Database)
		require.Equal(t, "h.example.com", cfg.TLSConfig.ServerName)
		require.False(t, cfg.TLSConfig.InsecureSkipVerify)
		require.NotNil(t, cfg.TLSConfig.RootCAs)
		require.Empty(t, cfg.Fallbacks, "no second try without TLS")
	}
	cfg, err := parse(mustURL(t, TLS{CAFile: ca}, "postgres://u:p%3Fw@h1,h2/d?sslmode=disable&application_name=x+y"))
	require.NoError(t, err)
	require.Equal(t, "p?w", cfg.Password)
	require.Equal(t, "x+y", cfg.RuntimeParams["application_name"])
	require.Len(t, cfg.Fallbacks, 1)
	require.Equal(t, "h2", cfg.Fallbacks[0].TLSConfig.ServerName)

	for _, was := range []string{"postgres://u@h/d?sslmode=disable&sslcertmode=disable&ssl%6Dode=prefer", "host=h user=u sslcertmode=disable"} {
		cert, key := a.sign(x509.Certificate{})
		own := TLS{CAFile: ca, CertFile: filepath.Join(dir, "own.crt"), KeyFile: filepath.Join(dir, "own.key")}
		require.NoError(t, os.WriteFile(own.CertFile, cert, 0o600))
		require.NoError(t, os.WriteFile(own.KeyFile, key, 0o600))
		target := mustURL(t, own, was)
		cfg, err := parse(target)
		require.NoError(t, err)
		require.Len(t, cfg.TLSConfig.Certificates, 1, "our certificate is shown")
		require.Equal(t, 1, strings.Count(target, "sslmode"), "no guess is needed which of two counts")
		require.NotContains(t, target, "%6Dode")
		both := TLS{CAFile: ca, CertFile: filepath.Join(dir, "both.pem"), KeyFile: filepath.Join(dir, "both.pem")}
		require.NoError(t, os.WriteFile(both.CertFile, append(cert, key...), 0o600))
		_, err = parse("host=h user=u" + both.keywords())
		require.Equal(t, err == nil, both.Check() == nil, "what is checked is what a connection reads")
	}
	same, err := TLS{}.URL("anything")
	require.NoError(t, err)
	require.Equal(t, "anything", same)
	for _, bad := range []TLS{{CertFile: "c", KeyFile: "k"}, {CAFile: ca, CertFile: "c"}, {CAFile: dir + "/none"}, {CAFile: ca, CertFile: ca, KeyFile: ca}} {
		_, err := bad.URL("postgres://u:hunter2@h/d")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	}
	for _, bad := range []string{"postgres://u:hunter2@h:port/d", "postgres://u:hunter2@h/d?%zz"} {
		target, err := TLS{CAFile: ca}.URL(bad)
		if err == nil {
			_, err = OpenPool(t.Context(), target, 1)
		}
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
