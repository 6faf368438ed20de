package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/lib/credential"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
)

// Environment variables of the server. Database URLs hold a password, so they are no flags.
const (
	envDatabaseURL       = "BULLPEN_DATABASE_URL"
	envListenDatabaseURL = "BULLPEN_LISTEN_DATABASE_URL"
)

// databaseConfig is where the database is, and how it and we prove what we are.
type databaseConfig struct {
	urlFile  string
	tls      ledger.TLS
	maxConns int32
}

func (c *databaseConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.urlFile, "database-url-file", "", "file with the database URL (default: $"+envDatabaseURL+")")
	f.StringVar(&c.tls.CAFile, "database-ca-file", "", "CA certificates (PEM) of the database; connections are then "+
		"encrypted and the host name is verified, whatever the URL says")
	f.StringVar(&c.tls.CertFile, "database-cert-file", "", "client certificate (PEM), if the database requires one")
	f.StringVar(&c.tls.KeyFile, "database-key-file", "", "key (PEM) of --database-cert-file")
}

// url of the database.
func (c *databaseConfig) url() (string, error) {
	if c.urlFile == "" {
		if url := os.Getenv(envDatabaseURL); url != "" {
			return c.encrypted(url)
		}
		return "", errors.New("no database: set " + envDatabaseURL + ", such as postgres://bullpen@host/bullpen, or use --database-url-file")
	}
	url, err := readSecretFile(c.urlFile, "the database URL")
	if err != nil {
		return "", err
	}
	return c.encrypted(url)
}

// listenURL is for what needs sessions, as notifications, passes and migrations do. It leads to the same database, and not through a connection pooler
// that pools transactions.
func (c *databaseConfig) listenURL(otherwise string) (string, error) {
	if url := os.Getenv(envListenDatabaseURL); url != "" {
		return c.encrypted(url)
	}
	return otherwise, nil
}

func (c *databaseConfig) encrypted(url string) (string, error) {
	url, err := c.tls.URL(url)
	if err != nil {
		return "", fmt.Errorf("--database-ca-file, --database-cert-file, --database-key-file: %w", err)
	}
	return url, nil
}

// credential watches the certificates. A change needs no action, for each connection reads them; but a broken replacement is logged, while
// connections go on with the previous ones.
func (c *databaseConfig) credential() []credential.Source {
	if c.tls.CAFile == "" {
		return nil
	}
	source := credential.Source{Name: "database_tls", Use: func(context.Context, [][]byte) error { return c.tls.Check() }}
	for _, path := range []string{c.tls.CAFile, c.tls.CertFile, c.tls.KeyFile} {
		if path != "" {
			source.Files = append(source.Files, credential.File{Path: path})
		}
	}
	return []credential.Source{source}
}

// readSecretFile reads a one-line secret; the error names the file and never what is in it.
func readSecretFile(file, what string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", what, err)
	}
	text := strings.TrimSpace(string(raw))
	if text == "" {
		return "", fmt.Errorf("reading %s: %s is empty", what, file)
	}
	return text, nil
}

func newServerMigrateCommand() *cobra.Command {
	var cfg databaseConfig
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate the database's schema and exit",
		Example: `  BULLPEN_DATABASE_URL=postgres://bullpen@db/bullpen bullpen server migrate
  bullpen server migrate --database-url-file url --database-ca-file ca.crt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, err := cfg.url()
			if err != nil {
				return err
			}
			if url, err = cfg.listenURL(url); err != nil {
				return err
			}
			return ledger.Migrate(cmd.Context(), url)
		},
	}
	cfg.flags(cmd.Flags())
	return cmd
}
