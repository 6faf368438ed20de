package githubapp

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
)

// openers start a browser, by operating system.
var openers = map[string][]string{
	"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}, "linux": {"xdg-open"}, "freebsd": {"xdg-open"},
}

// OpenBrowser shows a URL in the user's browser, and does not wait for it. The URL is seen in the list of processes, so it must be of use
// once only.
func OpenBrowser(ctx context.Context, url string) error {
	opener, known := openers[runtime.GOOS]
	if !known {
		return fmt.Errorf("starting a browser: not supported on %s", runtime.GOOS)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), opener[0], append(opener[1:], url)...) //nolint:gosec // of the table above
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting a browser: %w", err)
	}
	return cmd.Process.Release() // it may live as long as the browser
}
