//go:build !linux

package guard

import (
	"context"
	"errors"
	"fmt"
)

// Run fails: containers are Linux's.
func Run(context.Context, Options) error {
	return fmt.Errorf("guarding a container: %w", errors.ErrUnsupported)
}

// Limit fails: containers are Linux's.
func Limit(string, []string) error {
	return fmt.Errorf("limiting a process: %w", errors.ErrUnsupported)
}
