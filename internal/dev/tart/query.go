//go:build unix

package tart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

func formatFlags(f *pflag.FlagSet) { f.String("format", "text", "") }

func listFlags(f *pflag.FlagSet) {
	formatFlags(f)
	f.String("source", "", "")
	f.BoolP("quiet", "q", false, "")
}

// listed is an element of `list --format json` (Tart 4.2): Size is a number here.
type listed struct {
	Source   string
	Name     string
	Disk     int
	Size     int
	Accessed string
	Running  bool
	State    string
}

func runList(_ context.Context, c *command) error {
	source, _ := c.flags.GetString("source")
	all := []listed{}
	var err error
	if source != "oci" {
		if all, err = c.local(); err != nil {
			return err
		}
	}
	if source != "local" {
		images, err := c.oci()
		if err != nil {
			return err
		}
		all = append(all, images...)
	}
	if quiet, _ := c.flags.GetBool("quiet"); quiet {
		for _, l := range all {
			fmt.Fprintln(c.Stdout, l.Name)
		}
		return nil
	}
	if format, _ := c.flags.GetString("format"); format == "json" {
		return c.printJSON(all)
	}
	fmt.Fprintf(c.Stdout, "%-6s %-40s %-4s %-4s %-28s %s\n", "Source", "Name", "Disk", "Size", "Accessed", "State")
	for _, l := range all {
		fmt.Fprintf(c.Stdout, "%-6s %-40s %-4d %-4d %-28s %s\n", l.Source, l.Name, l.Disk, l.Size, l.Accessed, l.State)
	}
	return nil
}

func (c *command) printJSON(value any) error {
	encoder := json.NewEncoder(c.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// local are the VMs that have all their files: likely, the others are skipped. One that is deleted while it is being
// read makes the whole command fail (Tart 4.2).
func (c *command) local() ([]listed, error) {
	dirs, err := os.ReadDir(c.vms())
	if err != nil {
		return nil, err
	}
	all := make([]listed, 0, len(dirs))
	for _, f := range dirs {
		vm := c.vm(f.Name())
		config, err := vm.read()
		if isCorrupt(err) {
			continue
		}
		if err != nil {
			return nil, raced(err)
		}
		info, err := f.Info()
		if err != nil {
			return nil, raced(err)
		}
		state, err := vm.state()
		if err != nil {
			return nil, raced(err)
		}
		all = append(all, listed{
			Source: "local", Name: f.Name(), Disk: config.Image.DiskGB, Size: config.Image.SizeGB,
			Accessed: info.ModTime().UTC().Format(time.RFC3339), Running: state == stateRunning, State: state,
		})
	}
	return all, nil
}

func raced(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return message("list-race", "")
	}
	return err
}

// oci are the images, each by its tags and by its digest (Tart 4.2).
func (c *command) oci() ([]listed, error) {
	images, err := c.cached()
	if err != nil {
		return nil, raced(err)
	}
	var all []listed
	for _, i := range images {
		row := listed{
			Source: "OCI", Disk: i.config.Image.DiskGB, Size: i.config.Image.SizeGB,
			Accessed: i.accessed.UTC().Format(time.RFC3339), State: stateStopped,
		}
		for _, tag := range c.tags(i.ref) {
			row.Name = tag.repository + ":" + tag.tag
			all = append(all, row)
		}
		row.Name = i.ref.repository + "@" + i.ref.digest
		all = append(all, row)
	}
	return all, nil
}

// details are what `get --format json` prints (Tart 4.2): Size is a string here, and there is no name.
type details struct {
	OS         string
	CPU        int
	Memory     int64 // MB
	Disk       int
	DiskFormat string
	Size       string
	Display    string
	Running    bool
	State      string
}

func runGet(_ context.Context, c *command) error {
	name := c.args[0]
	vm := c.vm(name)
	if r, remote := parseReference(name); remote {
		vm = c.dir(r)
	}
	if !vm.exists() {
		return message("not-found", name)
	}
	config, err := vm.read()
	if err != nil {
		return err
	}
	state, err := vm.state()
	if err != nil {
		return err
	}
	d := details{
		OS: config.OS, CPU: config.CPUCount, Memory: config.Memory / megabyte, Disk: config.Image.DiskGB, DiskFormat: config.DiskFormat,
		Size: fmt.Sprintf("%.3f", float64(config.Image.SizeGB)), Display: fmt.Sprintf("%dx%d", config.Display.Width, config.Display.Height),
		Running: state == stateRunning, State: state,
	}
	if format, _ := c.flags.GetString("format"); format == "json" {
		return c.printJSON(d)
	}
	fmt.Fprintf(c.Stdout, "OS     CPU Memory Disk DiskFormat Size   Display  State\n%-6s %-3d %-6d %-4d %-10s %-6s %-8s %s\n",
		d.OS, d.CPU, d.Memory, d.Disk, d.DiskFormat, d.Size, d.Display, d.State)
	return nil
}

func setFlags(f *pflag.FlagSet) {
	f.Int("cpu", 0, "")
	f.Int64("memory", 0, "")
	f.Int("disk-size", 0, "")
	f.String("display", "", "")
	f.Bool("random-mac", false, "")
	f.Bool("random-serial", false, "")
}

// runSet changes a VM; its disk only grows (Tart 4.2).
func runSet(_ context.Context, c *command) error {
	name := c.args[0]
	vm := c.vm(name)
	if !vm.exists() {
		return message("not-found", name)
	}
	config, err := vm.read()
	if err != nil {
		return err
	}
	if cpu, _ := c.flags.GetInt("cpu"); cpu != 0 {
		if cpu < config.CPUMin {
			return failed(codeFailed, "Error: LessThanMinimalResourcesError: VM should have %d CPU cores at minimum (requested %d)", config.CPUMin, cpu)
		}
		config.CPUCount = cpu
	}
	if memory, _ := c.flags.GetInt64("memory"); memory != 0 {
		if memory*megabyte < config.MemoryMin {
			return failed(codeFailed, "Error: LessThanMinimalResourcesError: VM should have %d bytes of memory at minimum (requested %d)",
				config.MemoryMin, memory*megabyte)
		}
		config.Memory = memory * megabyte
	}
	if size, _ := c.flags.GetString("display"); size != "" {
		if _, err := fmt.Sscanf(size, "%dx%d", &config.Display.Width, &config.Display.Height); err != nil {
			return usage("The value '"+size+"' is invalid for '--display <display>'", "set <name>")
		}
	}
	if random, _ := c.flags.GetBool("random-mac"); random {
		config.MAC = randomMAC()
	}
	if random, _ := c.flags.GetBool("random-serial"); random {
		config.ECID = randomSerial()
	}
	if disk, _ := c.flags.GetInt("disk-size"); disk != 0 {
		if disk < config.Image.DiskGB {
			return failed(codeFailed, "new disk size of %d GB should be larger than the current disk size of %d GB", disk, config.Image.DiskGB)
		}
		config.Image.DiskGB = disk
		if err := os.Truncate(vm.disk(), int64(disk)*gigabyte); err != nil {
			return err
		}
	}
	return vm.write(config)
}

func pruneFlags(f *pflag.FlagSet) {
	f.String("entries", "caches", "")
	f.Uint("older-than", 0, "")
	f.Uint("space-budget", 0, "")
}

// runPrune needs at least one criterion, and skips VMs that run (Tart 4.2).
func runPrune(_ context.Context, c *command) error {
	if !c.flags.Changed("older-than") && !c.flags.Changed("space-budget") {
		return usage("at least one pruning criteria must be specified", "prune")
	}
	switch entries, _ := c.flags.GetString("entries"); entries {
	case "caches":
		images, err := c.cached()
		if err != nil {
			return err
		}
		var candidates []candidate
		for _, i := range images {
			candidates = append(candidates, candidate{i.config.Image.SizeGB, i.accessed, func() error { return c.removeImage(i.ref) }})
		}
		return c.prune(candidates)
	case "vms":
		vms, err := c.local()
		if err != nil {
			return err
		}
		var candidates []candidate
		for _, vm := range vms {
			accessed, err := time.Parse(time.RFC3339, vm.Accessed)
			if err != nil {
				return err
			}
			if !vm.Running {
				candidates = append(candidates, candidate{vm.Size, accessed, func() error { return c.deleteVM(vm.Name) }})
			}
		}
		return c.prune(candidates)
	default:
		return usage("The value '"+entries+"' is invalid for '--entries <entries>'", "prune")
	}
}

// candidate may be pruned.
type candidate struct {
	sizeGB   int
	accessed time.Time
	remove   func() error
}

// prune removes what is older than asked, and the oldest of the rest until it fits the budget.
func (c *command) prune(candidates []candidate) error {
	if c.flags.Changed("older-than") {
		days, _ := c.flags.GetUint("older-than")
		cutoff := time.Now().AddDate(0, 0, -int(days))
		var rest []candidate
		for _, k := range candidates {
			if k.accessed.After(cutoff) {
				rest = append(rest, k)
			} else if err := k.remove(); err != nil {
				return err
			}
		}
		candidates = rest
	}
	if c.flags.Changed("space-budget") {
		budget, _ := c.flags.GetUint("space-budget")
		used := 0
		for _, k := range candidates {
			used += k.sizeGB
		}
		for _, k := range candidates {
			if used <= int(budget) {
				break
			}
			if err := k.remove(); err != nil {
				return err
			}
			used -= k.sizeGB
		}
	}
	return nil
}

// runLogin stores credentials in the keychain, which asks the user when it is locked (Tart 4.3).
func runLogin(_ context.Context, c *command) error {
	username, _ := c.flags.GetString("username")
	if fromInput, _ := c.flags.GetBool("password-stdin"); !fromInput || username == "" {
		return usage("both --username and --password-stdin are required", "login <host>")
	}
	password, err := io.ReadAll(io.LimitReader(c.Stdin, 1<<16))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(password)) == "" {
		return message("image-private", c.args[0])
	}
	if c.script.LockedKeychain {
		return message("keychain", "")
	}
	// The password itself is of no use to the fake.
	return os.WriteFile(filepath.Join(c.logins(), filepath.Base(c.args[0])), []byte(username), 0o600)
}

// authenticate finds credentials for a registry: the environment's come first, so that no keychain is needed (Tart 4.2, 4.3).
func (c *command) authenticate(name string, r reference) error {
	host := os.Getenv("TART_REGISTRY_HOSTNAME")
	if os.Getenv("TART_REGISTRY_USERNAME") != "" && os.Getenv("TART_REGISTRY_PASSWORD") != "" && (host == "" || host == r.host()) {
		return nil
	}
	if c.script.LockedKeychain {
		return message("keychain", "")
	}
	if _, err := os.Stat(filepath.Join(c.logins(), r.host())); err == nil {
		return nil
	}
	return message("image-private", name)
}
