//go:build !linux

package dockerfile

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// Serve fails: containers are Linux's.
func Serve(context.Context, net.Listener, Options) error {
	return fmt.Errorf("making containers of actions: %w", errors.ErrUnsupported)
}

// Unpack fails, as Serve does.
func Unpack(string, []string) error {
	return fmt.Errorf("unpacking an image: %w", errors.ErrUnsupported)
}
