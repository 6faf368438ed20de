package onebox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

// makeSecrets generates what the stand-in and the server share, once for the life of the directory: the App's key, the
// webhook secret and the token of the stand-in's admin API.
func makeSecrets(l Layout) error {
	if err := once(l.secret("app.pem"), func() ([]byte, error) {
		_, encoded, err := standin.GenerateAppKey()
		return encoded, err
	}); err != nil {
		return err
	}
	for _, name := range []string{"webhook-secret", "admin-token"} {
		if err := once(l.secret(name), func() ([]byte, error) { return []byte(rand.Text() + "\n"), nil }); err != nil {
			return err
		}
	}
	return nil
}

func once(path string, generate func() ([]byte, error)) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data, err := generate()
	if err != nil {
		return err
	}
	return writePrivate(path, data)
}

// readSecret reads a file of one line; the error never quotes it.
func readSecret(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading a secret: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// checkApp makes sure that the files of a real App are there and are what they should be.
func checkApp(app *App, poll bool) error {
	if app == nil {
		return nil
	}
	if app.ID <= 0 {
		return errors.New("--github-app must be the App's ID, a positive number. It is on the App's settings page")
	}
	switch {
	case app.KeyFile == "" && poll:
		return errors.New("--github-app needs --github-private-key-file. Generate the key on the App's settings page")
	case app.KeyFile == "" || app.SecretFile == "" && !poll:
		return errors.New("--github-app needs --github-private-key-file and --webhook-secret-file. Both come from the App's settings page " +
			"(no secret with --webhooks=poll)")
	}
	key, err := os.ReadFile(app.KeyFile)
	if err != nil {
		return fmt.Errorf("reading --github-private-key-file: %w", err)
	}
	if _, err := standin.ParseAppKey(key); err != nil {
		return fmt.Errorf("--github-private-key-file %s: %w", app.KeyFile, err)
	}
	if poll {
		return nil
	}
	secret, err := os.ReadFile(app.SecretFile)
	if err != nil {
		return fmt.Errorf("reading --webhook-secret-file: %w", err)
	}
	if strings.TrimSpace(string(secret)) == "" {
		return fmt.Errorf("--webhook-secret-file %s is empty. Store the App's webhook secret in it", app.SecretFile)
	}
	return nil
}
