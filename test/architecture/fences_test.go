package architecture

import (
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// closures says what a package may not depend on, not even through another package.
var closures = []struct {
	pkg    string
	deny   []string // import paths, with all below them
	allow  []string // if set: nothing outside the standard library but these
	strict bool
	reason string
}{
	{pkg: "internal/fleet", strict: true, reason: "the vocabulary: every arrow points here, so none may leave"},
	{pkg: "internal/lib/faultpoint", strict: true, reason: "it is in every part, and must bring nothing along"},
	{pkg: "internal/lib/logfile", strict: true, allow: []string{"golang.org/x/sys", module + "/internal/lib/logfile"}, reason: "it knows nothing of who logs"},
	{pkg: "internal/lib/childproc", strict: true, reason: "it knows nothing of what it runs"},
	{pkg: "internal/plan/lifecycle", strict: true, allow: []string{module + "/internal/fleet", module + "/internal/plan/lifecycle"},
		reason: "plans are pure functions, to be tested over every state with no cluster"},
	{pkg: "internal/server/why", deny: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/jackc", module + "/internal/server/ledger", module + "/internal/server/cluster",
		module + "/internal/server/admin"}, reason: "the answer is a pure function of evidence, whoever gathers it"},
	{pkg: "internal/plan/scaling", strict: true, allow: []string{module + "/internal/plan/scaling"},
		reason: "plans are pure functions, to be tested over every state with no cluster"},
	{pkg: "internal/plan/poolspec", deny: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/jackc", module + "/internal/server/ledger"},
		reason: "what a field means is a pure function, for controllers and for the simulator"},
	{pkg: "internal/dev/simulate", deny: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/jackc", module + "/internal/server/ledger", module + "/internal/controller"},
		reason: "what is played by a virtual clock knows no cluster and no database"},
	{pkg: "internal/dev/netpolicy", deny: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", module},
		reason: "what policies mean is a function of the objects"},
	{pkg: "internal/dev/netpolicy/gate", deny: []string{"sigs.k8s.io/controller-runtime", module + "/api", module + "/internal/server/dispatch", module + "/internal/runnerpod"},
		reason: "a network plug-in knows policies and pods, and nothing of what they are for"},
	{pkg: "internal/machost/pfrules", strict: true, reason: "what rules say is a function of networks, to be tested over all of them with no host"},
	{pkg: "internal/node/tartcli", strict: true, allow: []string{"golang.org/x/sys", module + "/internal/node/tartcli"},
		reason: "a client of a program knows neither pods nor nodes"},
	{pkg: "internal/machost/remote", deny: []string{"k8s.io", "sigs.k8s.io/controller-runtime", module + "/api", module + "/internal/controller", module + "/internal/machost/steps"},
		reason: "a bootstrap over SSH is the same for a person and for a controller, and what it applies is the host's business"},
	{pkg: "internal/dev/tart", strict: true, allow: []string{"golang.org/x/sys", "golang.org/x/term", "github.com/spf13/pflag", module + "/internal/dev/tart", module + "/internal/dev/tart/pty"},
		reason: "a stand-in that shares code with what is tested on it shares its mistakes"},
	{pkg: "internal/machost", deny: []string{"k8s.io", "golang.org/x/crypto/ssh", module + "/api", module + "/internal/node", module + "/internal/controller"},
		reason: "what prepares a Mac runs before there is a cluster, and under whatever reaches it"},
	{pkg: "internal/machost/steps", deny: []string{"k8s.io", "golang.org/x/crypto/ssh", module + "/api", module + "/internal/node", module + "/internal/controller"},
		reason: "what prepares a Mac runs before there is a cluster, and under whatever reaches it"},
	{pkg: "internal/dev/mac", strict: true, allow: []string{"golang.org/x/sys", "golang.org/x/term", "github.com/spf13/pflag", "howett.net/plist", module + "/internal/dev/mac", module + "/internal/dev/tart", module + "/internal/dev/tart/pty"},
		reason: "a stand-in that shares code with what is tested on it shares its mistakes"},
	{pkg: "internal/dev/mac/pf", strict: true, allow: []string{module + "/internal/dev/mac/pf"},
		reason: "what rules mean is a function of the rules"},
	{pkg: "internal/agent", deny: []string{"k8s.io", "sigs.k8s.io", "github.com/jackc", module + "/internal/server", module + "/api/v1alpha1", module + "/api/adminapi"},
		reason: "the agent runs beside customer code: small, and knowing no cluster and no database"},
	{pkg: "api/v1alpha1", deny: []string{"sigs.k8s.io/controller-runtime", module + "/internal"},
		reason: "whoever uses the API types must not inherit a controller"},
	{pkg: "internal/dev/controlplane", deny: []string{"sigs.k8s.io/controller-runtime", module + "/api", module + "/internal/fleet"},
		reason: "the control plane knows Kubernetes, not Bullpen"},
	{pkg: "internal/dev/controlplane/assets", strict: true, allow: []string{module + "/internal/dev/controlplane/assets"},
		reason: "building the devcluster must not wait for client-go to compile"},
	{pkg: "internal/controller/machost", deny: []string{module + "/internal/plan/lifecycle", module + "/internal/controller/pool", module + "/internal/plan/scaling"},
		reason: "who prepares Macs ends no runner"},
	{pkg: "cmd/bullpen", deny: []string{"testing", "github.com/stretchr/testify", "pgregory.net/rapid", module + "/test"},
		reason: "what is for tests does not ship"},
	{pkg: "cmd/bullpen", deny: []string{"helm.sh/helm"},
		reason: "the binary carries what the chart renders to, not the engine that renders it"},
}

func TestClosures(t *testing.T) {
	own, all := modulePackages(t)
	for _, fence := range closures {
		t.Run(fence.pkg, func(t *testing.T) {
			p, exists := own[fence.pkg]
			require.True(t, exists, "a fence around a package that does not exist guards nothing")
			for _, dependency := range p.Deps {
				require.False(t, withinAny(dependency, fence.deny), "%s depends on %s: %s", fence.pkg, dependency, fence.reason)
				if fence.strict && !all[dependency].Standard {
					require.True(t, withinAny(dependency, fence.allow), "%s depends on %s: %s", fence.pkg, dependency, fence.reason)
				}
			}
		})
	}
}

// owners says who alone may import a library, in tests too.
var owners = []struct {
	library string
	only    []string
	tests   bool // tests of any package may, too
	reason  string
}{
	{library: "github.com/jackc/pgx/v5", only: []string{"internal/server/ledger", "internal/server/periodic", "internal/dev/postgres", "test/kit", "test/bench", "test/soak"},
		reason: "one package speaks SQL, and the one whose queue lives in the database"},
	{library: "github.com/pressly/goose/v3", only: []string{"internal/server/ledger"},
		reason: "migrations are the database package's"},
	{library: "github.com/riverqueue/river", only: []string{"internal/server/ledger", "internal/server/periodic"},
		reason: "what runs again and again, and how, is one package's business"},
	{library: "sigs.k8s.io/controller-runtime", only: []string{"internal/controller", "internal/node", "internal/dev/onebox", "test/kit", "test"}, tests: true,
		reason: "the rest of the product stays plain"},
	{library: "helm.sh/helm/v4", only: []string{"test/kit/helmchart"},
		reason: "one package knows Helm's engine, and it does not ship"},
}

func TestOwners(t *testing.T) {
	own, _ := modulePackages(t)
	for _, fence := range owners {
		t.Run(fence.library, func(t *testing.T) {
			used := false
			for _, path := range slices.Sorted(maps.Keys(own)) {
				imports := slices.Clone(own[path].Imports)
				if !fence.tests {
					imports = slices.Concat(imports, own[path].TestImports, own[path].XTestImports)
				}
				for _, imported := range imports {
					if !within(imported, fence.library) {
						continue
					}
					used = true
					require.True(t, withinAny(path, fence.only), "%s imports %s: %s", path, imported, fence.reason)
				}
			}
			require.True(t, used, "nobody imports it: a fence around nothing")
		})
	}
}

// Names that say nothing collect everything.
var junkDrawers = []string{"util", "utils", "common", "helper", "helpers", "types", "models", "manager", "misc"}

func TestPackages_AreNamedAfterWhatTheyDo(t *testing.T) {
	own, _ := modulePackages(t)
	for path := range own {
		require.NotContains(t, junkDrawers, filepath.Base(path), "package %s", path)
	}
}

func TestPackages_SayWhatTheyAreFor(t *testing.T) {
	own, _ := modulePackages(t)
	for _, path := range slices.Sorted(maps.Keys(own)) {
		p := own[path]
		if len(p.GoFiles) == 0 || withinAny(path, []string{"internal/server/ledger/sqlcgen"}) { // tests only; generated
			continue
		}
		documented := map[string]string{}
		for _, name := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			require.NoError(t, err)
			if parsed.Doc != nil {
				documented[name] = parsed.Doc.Text()
			}
		}
		require.Len(t, documented, 1, "package %s: exactly one file carries the package comment", path)
		if p.Name == "main" {
			continue
		}
		text, inDoc := documented["doc.go"]
		require.True(t, inDoc, "package %s: the package comment belongs in doc.go", path)
		require.True(t, strings.HasPrefix(text, "Package "+p.Name+" "), "package %s: its comment begins with %q", path, "Package "+p.Name)
	}
}
