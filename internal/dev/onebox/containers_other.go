//go:build !linux

package onebox

import (
	"context"
	"errors"
	"io"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
)

var errNoContainers = errors.New("--containers needs Linux: runners in containers need its namespaces and cgroups. Leave it out, or use a virtual machine with Linux")

// containers is not available on this system.
type containers struct{}

func (o *Options) checkContainers() error { return errNoContainers }

func (b *Box) startContainers(context.Context, controlplane.Options) (*controlplane.ControlPlane, error) {
	return nil, errNoContainers
}

func (c *containers) addNode(context.Context, *applier) error { return errNoContainers }
func (c *containers) serveImages(context.Context) error       { return errNoContainers }
func (c *containers) awaitDispatch(context.Context) error     { return errNoContainers }
func (c *containers) keep(context.Context)                    {}
func (c *containers) init() int                               { return 0 }
func (c *containers) stopNode(context.Context) error          { return nil }
func (c *containers) stop(context.Context) error              { return nil }
func clearNode(context.Context, Layout) error                 { return nil }
func nodeRemains(Layout) ([]string, error)                    { return nil, nil }
func (c *containers) replace(context.Context, string, bool) (oldPID, newPID int, err error) {
	return 0, 0, errNoContainers
}

// LoadImages is not available on this system.
func LoadImages(context.Context, string, string, io.Writer) error { return errNoContainers }

// ListImages is not available on this system.
func ListImages(context.Context, string, io.Writer) error { return errNoContainers }
