//go:build unix

package tartcli

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// unreadable is a success that says nothing.
func unreadable(operation string, err error) error {
	return &Error{Operation: operation, Kind: KindUnreadable, Err: err}
}

// Version asks Tart for its release. It is the quickest way to find out whether there is one.
func (c *Client) Version(ctx context.Context) (Version, error) {
	const operation = "asking Tart for its version"
	text, err := c.output(ctx, call{operation: operation, timeout: c.opts.Timeouts.Query, args: []string{"--version"}})
	if err != nil {
		return Version{}, err
	}
	v, err := parseVersion(text)
	if err != nil {
		return v, unreadable(operation, err)
	}
	return v, nil
}

const (
	// listAttempts is how often List asks: it may fail because a VM was deleted while it looked.
	listAttempts = 4
	listPause    = 100 * time.Millisecond
)

// List returns every VM and every image in the cache, as far as Tart knows: a VM that lacks one of its files is not
// there, and one that runs may be called stopped (tart#967).
func (c *Client) List(ctx context.Context) ([]VM, error) {
	const operation = "listing VMs"
	for attempt := 1; ; attempt++ {
		text, err := c.output(ctx, call{operation: operation, timeout: c.opts.Timeouts.Query, args: []string{"list", "--format", "json"}})
		if err == nil {
			vms, failed := parseList(text)
			if failed == nil {
				return vms, nil
			}
			err = unreadable(operation, failed)
		}
		switch KindOf(err) {
		case KindNoProgram, KindTimeout, KindCanceled, KindUsage:
			return nil, err
		}
		if attempt == listAttempts {
			return nil, err
		}
		c.opts.Pause(ctx, time.Duration(attempt)*listPause)
	}
}

// Pull fetches an image into the cache, for as long as something arrives. Tart takes the name of a local VM for an image that is there already: what is no
// reference with a registry is refused here.
func (c *Client) Pull(ctx context.Context, image string) error {
	operation := "pulling " + image
	if err := checkName(operation, image); err != nil {
		return err
	}
	if !strings.Contains(image, "/") {
		return &Error{Operation: operation, Kind: KindUsage, Code: -1, Err: errors.New("an image has a registry and a path, as in ghcr.io/org/image:tag")}
	}
	_, err := c.output(ctx, call{operation: operation, silence: c.opts.Timeouts.Silence, args: []string{"pull", image}})
	return err
}

// Clone copies a VM or an image in the cache to a new VM. An image that is not in the cache is pulled, which takes longer than the timeout
// of a copy: Pull it first. A VM of that name is replaced without notice, even a running one: use unique names. Both VMs have the same MAC
// address and serial number until Set changes them.
func (c *Client) Clone(ctx context.Context, source, name string) error {
	operation := "cloning " + source + " to " + name
	if err := errors.Join(checkName(operation, source), checkName(operation, name)); err != nil {
		return err
	}
	_, err := c.output(ctx, call{operation: operation, timeout: c.opts.Timeouts.Clone, args: []string{"clone", source, name}})
	return err
}

// Settings are the values to set; zero values stay as they are.
type Settings struct {
	CPU      int
	MemoryMB int64
	// RandomMAC and RandomSerial give the VM an identity of its own.
	RandomMAC, RandomSerial bool
}

// Set changes a VM that is not running.
func (c *Client) Set(ctx context.Context, name string, s Settings) error {
	operation := "setting up VM " + name
	if err := checkName(operation, name); err != nil {
		return err
	}
	args := []string{"set", name}
	if s.CPU > 0 {
		args = append(args, "--cpu", strconv.Itoa(s.CPU))
	}
	if s.MemoryMB > 0 {
		args = append(args, "--memory", strconv.FormatInt(s.MemoryMB, 10))
	}
	if s.RandomMAC {
		args = append(args, "--random-mac")
	}
	if s.RandomSerial {
		args = append(args, "--random-serial")
	}
	_, err := c.output(ctx, call{operation: operation, timeout: c.opts.Timeouts.Set, args: args})
	return err
}

// Stop ends a running VM: hard, at once, and by killing its process when it still runs after grace (whole seconds). nil does not
// say that its process has gone: see Holder.
func (c *Client) Stop(ctx context.Context, name string, grace time.Duration) error {
	operation := "stopping VM " + name
	if err := checkName(operation, name); err != nil {
		return err
	}
	args := []string{"stop", name, "--timeout", strconv.Itoa(int(grace / time.Second))}
	_, err := c.output(ctx, call{operation: operation, timeout: c.opts.Timeouts.Stop + grace, args: args})
	return err
}

// Delete removes VMs that do not run, and images from the cache, in their order; it stops at the first that it cannot remove.
func (c *Client) Delete(ctx context.Context, names ...string) error {
	operation := "deleting " + strings.Join(names, ", ")
	for _, name := range names {
		if err := checkName(operation, name); err != nil {
			return err
		}
	}
	_, err := c.output(ctx, call{operation: operation, timeout: c.opts.Timeouts.Delete, args: append([]string{"delete"}, names...)})
	return err
}

// FQN is the reference of an image in the cache by its digest.
func (c *Client) FQN(ctx context.Context, image string) (string, error) {
	operation := "finding the digest of " + image
	if err := checkName(operation, image); err != nil {
		return "", err
	}
	text, err := c.output(ctx, call{operation: operation, timeout: c.opts.Timeouts.Query, args: []string{"fqn", image}})
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(text)
	if err := checkName(operation, name); err != nil {
		return "", unreadable(operation, errors.New("there is no name in it"))
	}
	return name, nil
}
