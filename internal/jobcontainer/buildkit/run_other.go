//go:build !linux

package buildkit

import (
	"context"
	"errors"
	"fmt"
)

// Run fails: containers are Linux's.
func Run(context.Context, Options) error {
	return fmt.Errorf("starting BuildKit: %w", errors.ErrUnsupported)
}

// Exec fails, as Run does.
func Exec([]string) error { return fmt.Errorf("starting BuildKit: %w", errors.ErrUnsupported) }
