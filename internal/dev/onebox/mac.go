package onebox

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	devtart "github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/tart"
)

// macScript is how the fake of Tart behaves here: as a healthy Mac, but for the time that it takes.
var macScript = devtart.Script{Timing: devtart.Timing{
	Pull: devtart.Duration(2 * time.Second), Clone: devtart.Duration(200 * time.Millisecond), Boot: devtart.Duration(time.Second),
}}

// prepareMac makes the stand-in for a Mac.
func prepareMac(l Layout) error {
	for _, dir := range []string{l.MacNode(), l.TartHome()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the state directory of the macOS node: %w", err)
		}
	}
	if err := devtart.Write(l.TartHome(), macScript); err != nil {
		return fmt.Errorf("preparing the fake Tart: %w", err)
	}
	return nil
}

// tartArgs and launchctlArgs are the fakes in our binary, by their arguments.
var (
	tartArgs      = []string{"dev", "tart"}
	launchctlArgs = []string{"dev", "tart", "launchctl"}
)

// macCommand runs the node agent of the Mac.
func (s setting) macCommand() Command {
	l := s.layout
	c := s.command(partMac, 15*time.Second, "node",
		"--sandbox=tart",
		"--name="+MacNodeName,
		"--bootstrap-kubeconfig="+l.identity(bootstrapKubeconfig),
		"--state-dir="+l.MacNode(),
		"--tart="+strings.Join(append([]string{s.binary}, tartArgs...), " "),
		"--tart-home="+l.TartHome(),
		"--launchctl="+strings.Join(append([]string{s.binary}, launchctlArgs...), " "),
		"--cpu=8",
		"--memory=16Gi",
		"--kubelet-port="+s.addresses.port(s.addresses.MacKubelet),
		"--client-ca-file="+s.clientAuthority,
		minDiskFree,
	)
	c.Env = append(c.Env[:len(c.Env):len(c.Env)], "TART_HOME="+l.TartHome()) // the only thing that the fake of launchctl needs
	return c
}

// endMachines ends the macOS node's virtual machines, and says how many pods had something running.
func endMachines(ctx context.Context, l Layout, binary string) (int, error) {
	if !tart.Used(l.MacNode()) {
		return 0, nil
	}
	running, err := runningPods(ctx, l.MacNode())
	if err != nil {
		return 0, err
	}
	command := func(args []string) []string { return append([]string{binary}, args...) }
	if _, err := tart.Cleanup(ctx, tart.Options{
		StateDir: l.MacNode(), TartHome: l.TartHome(), Tart: command(tartArgs), Launchctl: command(launchctlArgs), StopGrace: time.Second,
	}); err != nil {
		return 0, fmt.Errorf("stopping the macOS runners: %w", err)
	}
	return running, nil
}
