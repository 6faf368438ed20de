package reference

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Man writes a man page of each command of root into a directory. The same tree and SOURCE_DATE_EPOCH give the same pages.
func Man(root *cobra.Command, dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making a directory for man pages: %w", err)
	}
	root.DisableAutoGenTag = true
	header := doc.GenManHeader{Section: "1", Source: "Bullpen " + version, Manual: "Bullpen"}
	if err := doc.GenManTree(root, &header, dir); err != nil {
		return fmt.Errorf("writing man pages: %w", err)
	}
	return nil
}
