package ledger

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	// ErrUnreachable: Postgres does not answer at that address.
	ErrUnreachable = errors.New("cannot reach Postgres")
	// ErrUntrusted: the server does not prove to be the database. Nothing was sent to it, in particular no password.
	ErrUntrusted = errors.New("the database's certificate is not trusted")
	// ErrRefused: Postgres answers, and does not let us in.
	ErrRefused = errors.New("Postgres does not let us in")
)

var errBadURL = errors.New("the database URL is not one that Postgres understands; it looks like postgres://user@host/name, " +
	"and the files that it names must be readable")

// TLS says how the database authenticates itself, and how we do, beside a password. The files are read again for
// every connection, so that they may be replaced at any time; connections that exist are not disturbed.
type TLS struct {
	// CAFile holds the certificates (PEM) of those who may sign the database's. If set, every connection is encrypted, and
	// the server's name is checked (sslmode=verify-full).
	CAFile string
	// CertFile and KeyFile (PEM) are our own, if the database asks for a certificate. They need a CAFile.
	CertFile, KeyFile string
}

// URL returns the database's URL, or keywords and values, with what t says in place of what it said of TLS itself: no URL
// weakens it.
func (t TLS) URL(database string) (string, error) {
	switch {
	case t == TLS{}:
		return database, nil
	case t.CAFile == "":
		return "", errors.New("a client certificate alone proves nothing of the database: name the file of its authority, too")
	case (t.CertFile == "") != (t.KeyFile == ""):
		return "", errors.New("a client certificate needs its key: name both files or neither")
	}
	if err := t.Check(); err != nil {
		return "", err
	}
	if !strings.HasPrefix(database, "postgres://") && !strings.HasPrefix(database, "postgresql://") {
		return database + t.keywords(), nil // of two of one keyword the later one counts
	}
	address, text, _ := strings.Cut(database, "?")
	var query []string // of two of one name no reader promises which counts, so each is there once
	for _, parameter := range strings.Split(text, "&") {
		key, _, _ := strings.Cut(parameter, "=")
		if key, err := url.PathUnescape(key); err != nil {
			return "", errBadURL // without the cause, which may quote a password
		} else if key != "" && !slices.Contains(tlsParameters, key) {
			query = append(query, parameter)
		}
	}
	for _, setting := range t.settings() { // Postgres takes a plus sign for one, so a space must be none
		query = append(query, setting[0]+"="+strings.ReplaceAll(url.QueryEscape(setting[1]), "+", "%20"))
	}
	return address + "?" + strings.Join(query, "&"), nil
}

// settings of a connection, by the names that Postgres' own tools give them.
func (t TLS) settings() [][2]string {
	settings := [][2]string{{"sslmode", "verify-full"}, {"sslrootcert", t.CAFile}}
	if t.CertFile != "" {
		settings = append(settings, [2]string{"sslcert", t.CertFile}, [2]string{"sslkey", t.KeyFile}, [2]string{"sslcertmode", "allow"})
	}
	return settings
}

func (t TLS) keywords() string {
	var text strings.Builder
	for _, setting := range t.settings() {
		text.WriteString(" " + setting[0] + "='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(setting[1]) + "'")
	}
	return text.String()
}

// tlsParameters are what a URL says of TLS.
var tlsParameters = []string{"ssl", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcertmode", "sslsni", "sslpassword"}

// Check reports whether the files can be used as they are now. Its errors name files, and never what is in them.
func (t TLS) Check() error {
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return fmt.Errorf("reading the certificates of the database's authority: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(text) {
			return fmt.Errorf("%s holds no certificate in PEM form", t.CAFile)
		}
	}
	if t.CertFile != "" {
		if _, err := pgx.ParseConfig("host=localhost user=nobody" + t.keywords()); err != nil { // as a connection reads them
			return fmt.Errorf("reading our certificate for the database and its key: %w", err)
		}
	}
	return nil
}

// parse reads the URL, and the files that it names as they are now.
func parse(database string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(database)
	if err != nil {
		return nil, errBadURL // without the cause, which may quote a password
	}
	return cfg, nil
}

// renewer gives each new connection the present contents of the certificate files. If they cannot be used, which
// TLS.Check reports, it gives the former contents.
type renewer struct {
	url  string
	last atomic.Pointer[pgx.ConnConfig]
}

func (r *renewer) beforeConnect(_ context.Context, connection *pgx.ConnConfig) error {
	fresh, err := parse(r.url)
	if err != nil {
		fresh = r.last.Load()
	}
	r.last.Store(fresh)
	connection.TLSConfig = fresh.TLSConfig
	connection.Fallbacks = fresh.Fallbacks // the same addresses in the same order, for the URL is the same
	return nil
}

// poolConfig is how a pool connects.
func poolConfig(database string, maxConns int32) (*pgxpool.Config, error) {
	connection, err := parse(database)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, errBadURL
	}
	r := &renewer{url: database}
	r.last.Store(connection)
	cfg.BeforeConnect = r.beforeConnect
	cfg.MaxConns = maxConns
	return cfg, nil
}

// steadyPlans prepares a connection that is a session of its own.
func steadyPlans(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, settleSession); err != nil {
		return fmt.Errorf("preparing a connection to the database: %w", err)
	}
	return nil
}

// connect makes one connection. It prepares no statements, so that it may lead through a pooler.
func connect(ctx context.Context, database string) (*pgx.Conn, error) {
	cfg, err := parse(database)
	if err != nil {
		return nil, err
	}
	cfg.DefaultQueryExecMode = RouteUnprepared.execMode(cfg.DefaultQueryExecMode)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, notConnected(cfg.Host, err)
	}
	return conn, nil
}

// notConnected says what is in the way: the first of those errors of this package that fits.
func notConnected(host string, err error) error {
	var certificate *tls.CertificateVerificationError
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &name):
		return fmt.Errorf("%w: it is not for %s: connect by a name that is in it (%w)", ErrUntrusted, host, err)
	case errors.As(err, &authority):
		return fmt.Errorf("%w: another authority has signed it than the one in the CA file (%w)", ErrUntrusted, err)
	case errors.As(err, &certificate):
		return fmt.Errorf("%w (%w)", ErrUntrusted, err)
	case errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28"):
		return fmt.Errorf("%w at %s: check user, password and client certificate (%w)", ErrRefused, host, err)
	case errors.As(err, &refused) && refused.Code == "08P01": // PostgreSQL has no such reason to refuse a connection
		return fmt.Errorf("%w at %s: a connection pooler answers there, and says why (%w)", ErrRefused, host, err)
	default:
		return fmt.Errorf("%w at %s: is it running, and does BULLPEN_DATABASE_URL point at it? (%w)", ErrUnreachable, host, err)
	}
}
