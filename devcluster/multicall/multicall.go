// Package multicall chooses one of several programs in one executable by the name that it was started under.
//
// It imports the standard library only, so that its tests do not compile Kubernetes. Begin with Programs.Choose.
package multicall

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Program runs one command. args is a whole argument vector, the program's own name first; the result is the
// process's exit code. A program may also end the process itself.
type Program func(args []string) int

// Programs are the commands in an executable, by the name that starts each.
type Programs map[string]Program

// Choose finds the program that an argument vector asks for: by the base name of args[0] (a link to the executable),
// or, when that is no program's name, by the first argument (`devcluster kubectl get pods`). It also returns the
// argument vector as that program expects it.
func (p Programs) Choose(args []string) (Program, []string, error) {
	if len(args) > 0 {
		if run, ok := p[filepath.Base(args[0])]; ok {
			return run, args, nil
		}
	}
	if len(args) > 1 {
		if run, ok := p[args[1]]; ok {
			return run, args[1:], nil
		}
	}
	names := slices.Sorted(maps.Keys(p))
	return nil, nil, fmt.Errorf("start this executable under one of the names %s (a link is enough), or give the name as first argument",
		strings.Join(names, ", "))
}
