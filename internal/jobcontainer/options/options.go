package options

import (
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/health"
)

// Options is what `options:` of one container asks for.
type Options struct {
	Env             []Variable // in order: a later one wins
	EnvFiles        []string   // read before Env
	User            string     // --user: user[:group]; empty: the image's
	WorkDir         string     // --workdir
	Entrypoint      *string    // --entrypoint: one program; empty: none
	StopSignal      string     // --stop-signal: a name or a number, as written
	StopTimeout     *int       // --stop-timeout, seconds; negative: no limit
	NoFile          *Limit     // --ulimit nofile
	Init            bool       // --init
	Platform        string     // --platform
	Hostname        string     // --hostname
	Names           []string   // --name and --network-alias: further names of the container
	AddHosts        []Host     // --add-host
	Ports           []string   // --publish, as `ports:`
	PublishAll      bool       // --publish-all: the ports that the image exposes
	Expose          []string   // --expose
	Volumes         []Volume   // --volume, --mount
	Tmpfs           []string   // --tmpfs: directories
	Health          health.Override
	HealthIsChanged bool     // any of --health-*
	Warnings        []string // sentences for the log, one for each option without effect
}

// Variable is one of --env.
type Variable struct {
	Name, Value string
	FromRunner  bool // `--env NAME`: the value is that of the runner's own variable, if it has it
}

// Host is one of --add-host.
type Host struct{ Name, IP string }

// Limit is one of --ulimit. -1 is unlimited.
type Limit struct{ Soft, Hard int64 }

// Volume is one of --volume or --mount.
type Volume struct {
	Text           string // as written
	Source, Target string // the source is a path or a name; empty: anonymous
	ReadOnly       bool
}

// Pool is what texts say about the pool of the runner.
type Pool struct {
	Resources string // "8 CPU, 16Gi"; empty: not said
	ShmBytes  int64  // size of /dev/shm; 0: the 64 MiB of container runtimes
}

// Error is returned for options that can't be used. Its text is for the job's log, and has one sentence or two for each problem.
type Error struct{ Problems []string }
