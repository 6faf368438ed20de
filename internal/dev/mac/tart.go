//go:build unix

package mac

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/bullpen-ci/bullpen/internal/dev/mac/pf"
	"github.com/bullpen-ci/bullpen/internal/dev/tart"
)

// sharing is the anchor by which macOS translates the addresses of machines. The system itself adds the calls to the main rule set when the
// first machine starts, so that loading pf.conf as a whole removes them until the next start.
const sharing = "com.apple.internet-sharing"

// runTart is the fake of Tart, on this Mac: a machine needs the session of who starts it, and its start brings up vmnet.
func runTart(_ context.Context, c *call) error {
	if os.Getenv("TART_HOME") == "" {
		home := c.root.Path("/Users/" + c.user + "/.tart")
		if err := errors.Join(os.MkdirAll(home, 0o755), os.Setenv("TART_HOME", home)); err != nil {
			return err
		}
	}
	if len(c.Args) > 0 && c.Args[0] == "run" {
		s, err := c.root.session()
		if err != nil {
			return err
		}
		if s.User == "" || s.User != c.user {
			m := tart.Messages["session-host-key"]
			return failed(m.Code, "%s", m.Text)
		}
		if err := c.root.StartSharing(); err != nil {
			return err
		}
	}
	return exitCode(tart.Main(tart.Program{Self: []string{c.Executable}, Args: c.Args, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr}))
}

// StartSharing is what vmnet does when a machine starts: it enables the packet filter, and puts NAT in force for the networks of machines.
func (r Root) StartSharing() error {
	var m Machine
	if err := r.read(machineFile, &m); err != nil {
		return err
	}
	if err := update(r, hostFile, func(h *host) error { // NAT forwards
		if h.Sysctl == nil {
			h.Sysctl = map[string]string{}
		}
		h.Sysctl["net.inet.ip.forwarding"] = "1"
		return nil
	}); err != nil {
		return err
	}
	return update(r, filterFile, func(f *pf.Filter) error {
		main := f.Rulesets[""]
		if main == nil {
			main = &pf.Ruleset{Tables: map[string]pf.Table{}}
			f.Rulesets = map[string]*pf.Ruleset{"": main}
		}
		for _, kind := range []pf.Kind{pf.KindScrubAnchor, pf.KindNATAnchor, pf.KindRDRAnchor, pf.KindAnchor} {
			if !slices.ContainsFunc(main.Rules, func(rule pf.Rule) bool { return rule.Kind == kind && rule.Anchor == sharing+"/*" }) {
				main.Add(pf.Rule{Kind: kind, Anchor: sharing + "/*"})
			}
		}
		text := ""
		for _, i := range m.Interfaces {
			for _, p := range i.Addresses {
				if i.Name != "en0" && i.Name != "lo0" && p.Addr().Is4() {
					text += fmt.Sprintf("nat on en0 inet from %s to any -> (en0) extfilter ei\nno nat on %s inet from %s to %s\n", p.Masked(), i.Name, p.Addr(), p.Masked())
				}
			}
		}
		if !f.Enabled {
			f.Enable()
		}
		return f.Load(sharing+"/shared_v4", "vmnet", text, pf.LoadOptions{Interfaces: m.interfaces(), ReadFile: os.ReadFile})
	})
}
