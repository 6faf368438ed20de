package examples

import (
	_ "embed"
	"slices"
)

//go:embed pool.yaml
var pool []byte

//go:embed containers-pool.yaml
var containerPool []byte

//go:embed standin-macos-pool.yaml
var macPool []byte

//go:embed macos.yaml
var macos []byte

//go:embed demo.yaml
var demo []byte

//go:embed services.yaml
var services []byte

//go:embed node-bootstrap.yaml
var nodeBootstrap []byte

// NodeBootstrap are the role bindings by which a bootstrap token becomes a node's certificate.
func NodeBootstrap() []byte { return slices.Clone(nodeBootstrap) }

// Pool is the RunnerPool that `bullpen up` makes when it is given none.
func Pool() []byte { return slices.Clone(pool) }

// ContainerPool is the RunnerPool that `bullpen up --containers` makes when it is given none.
func ContainerPool() []byte { return slices.Clone(containerPool) }

// MacPool is the RunnerPool that `bullpen up --macos` makes beside it.
func MacPool() []byte { return slices.Clone(macPool) }

// MacWorkflow is a workflow file for runners of the macOS pool.
func MacWorkflow() []byte { return slices.Clone(macos) }

// Demo is the workflow file of `bullpen demo`.
func Demo() []byte { return slices.Clone(demo) }

// Services is a workflow file whose jobs have services and a container, for runners of the pool of `bullpen up --containers`.
func Services() []byte { return slices.Clone(services) }
