package multicall

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	programs := Programs{
		"etcd":    func([]string) int { return 1 },
		"kubectl": func([]string) int { return 2 },
	}
	for _, c := range []struct {
		name     string
		args     []string
		wantExit int // 0: none is chosen
		wantArgs []string
	}{
		{"by a link's name", []string{"/cache/kubectl", "get", "pods"}, 2, []string{"/cache/kubectl", "get", "pods"}},
		{"by a bare name", []string{"etcd"}, 1, []string{"etcd"}},
		{"the name wins over the argument", []string{"./kubectl", "etcd"}, 2, []string{"./kubectl", "etcd"}},
		{"by the first argument", []string{"/cache/devcluster", "etcd", "--version"}, 1, []string{"etcd", "--version"}},
		{"neither", []string{"/cache/devcluster", "--version"}, 0, nil},
		{"only the first argument counts", []string{"devcluster", "-v", "etcd"}, 0, nil},
		{"nothing", nil, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			run, args, err := programs.Choose(c.args)
			if c.wantExit == 0 {
				if err == nil || !strings.Contains(err.Error(), "etcd, kubectl") {
					t.Fatalf("want an error that lists the names, got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := run(args); got != c.wantExit {
				t.Errorf("chose the program that exits with %d, want %d", got, c.wantExit)
			}
			if !slices.Equal(args, c.wantArgs) {
				t.Errorf("arguments %q, want %q", args, c.wantArgs)
			}
		})
	}
}
