package podnetwork

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// addresses keeps which pod has which address: a file for each, named after the address, that holds the pod's UID. Only
// one process may change it at a time.
type addresses struct {
	dir   string
	pods  netip.Prefix
	first netip.Addr // for pods; those before it are the node's
}

// newAddresses leaves the first address of the range, which names it, and the second, which is the bridge's.
func newAddresses(dir string, pods netip.Prefix) addresses {
	return addresses{dir: dir, pods: pods, first: pods.Masked().Addr().Next().Next()}
}

// bridge is the node's own address.
func (a addresses) bridge() netip.Addr { return a.pods.Masked().Addr().Next() }

// of is the address of a pod, or false.
func (a addresses) of(podUID string) (netip.Addr, bool) {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return netip.Addr{}, false
	}
	for _, e := range entries {
		address, err := netip.ParseAddr(e.Name())
		if err != nil {
			continue
		}
		if holder, err := os.ReadFile(filepath.Join(a.dir, e.Name())); err == nil && string(holder) == podUID {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// take gives the pod an address, the same one if it has one. It begins after the one that was given last, so that an
// address which a client may still remember is not another pod's a moment later.
func (a addresses) take(podUID string) (netip.Addr, error) {
	if has, ok := a.of(podUID); ok {
		return has, nil
	}
	// Whole from the first moment: a file without a holder would keep its address forever.
	holder := filepath.Join(a.dir, "holder")
	if err := os.WriteFile(holder, []byte(podUID), 0o600); err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = os.Remove(holder) }()
	first := a.after(a.last())
	for candidate := first; ; {
		err := os.Link(holder, filepath.Join(a.dir, candidate.String()))
		if err == nil {
			return candidate, os.WriteFile(a.lastFile(), []byte(candidate.String()), 0o600)
		}
		if !errors.Is(err, fs.ErrExist) {
			return netip.Addr{}, err
		}
		if candidate = a.after(candidate); candidate == first {
			return netip.Addr{}, fmt.Errorf("every address of %s is taken", a.pods)
		}
	}
}

func (a addresses) giveBack(podUID string) error {
	has, ok := a.of(podUID)
	if !ok {
		return nil
	}
	return os.Remove(filepath.Join(a.dir, has.String()))
}

func (a addresses) lastFile() string { return filepath.Join(a.dir, "last") }

// last is the address that was given last; before there is one, the end of the range, so that the next is the first.
func (a addresses) last() netip.Addr {
	text, err := os.ReadFile(a.lastFile())
	if err == nil {
		if address, err := netip.ParseAddr(strings.TrimSpace(string(text))); err == nil && a.pods.Contains(address) {
			return address
		}
	}
	return a.bridge()
}

// after is the next address of the range, from the first again after the last. The last address of a range is not given:
// it is the broadcast address.
func (a addresses) after(address netip.Addr) netip.Addr {
	next := address.Next()
	if !a.pods.Contains(next) || !a.pods.Contains(next.Next()) || next.Less(a.first) {
		return a.first
	}
	return next
}
