package cli

import (
	"context"
	"fmt"
	"html/template"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// linkPage sends the browser to the link.
var linkPage = template.Must(template.New("").Parse(`<!doctype html><meta charset="utf-8"><title>Bullpen</title>
<meta http-equiv="refresh" content="0; url={{.}}"><a href="{{.}}">Open the Bullpen console</a>
`))

// OpenLink shows a link that logs its reader in. A browser's arguments are seen in the list of processes, so they name a file that only the
// user can read, which sends the browser to the link. The file is deleted when shown fires, or ctx ends.
func OpenLink(ctx context.Context, link string, open func(context.Context, string) error, shown <-chan time.Time) (err error) {
	dir, err := os.MkdirTemp("", "bullpen-console-")
	if err != nil {
		return fmt.Errorf("opening the console: %w", err)
	}
	defer func() {
		if removed := os.RemoveAll(dir); err == nil && removed != nil {
			err = fmt.Errorf("removing the page with the login link: %w", removed)
		}
	}()
	path := filepath.Join(dir, "console.html")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the console: %w", err)
	}
	if err = linkPage.Execute(file, link); err != nil {
		_ = file.Close()
		return fmt.Errorf("opening the console: %w", err)
	}
	if err = file.Close(); err != nil {
		return fmt.Errorf("opening the console: %w", err)
	}
	if err = open(ctx, (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-shown:
	}
	return nil
}
