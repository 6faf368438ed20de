package examples

import (
	_ "embed"
	"slices"
)

//go:embed pool.yaml
var pool []byte

//go:embed demo.yaml
var demo []byte

//go:embed node-bootstrap.yaml
var nodeBootstrap []byte

// NodeBootstrap are the role bindings by which a bootstrap token becomes a node's certificate.
func NodeBootstrap() []byte { return slices.Clone(nodeBootstrap) }

// Pool is the RunnerPool that `bullpen up` makes when it is given none.
func Pool() []byte { return slices.Clone(pool) }

// Demo is the workflow file of `bullpen demo`.
func Demo() []byte { return slices.Clone(demo) }
