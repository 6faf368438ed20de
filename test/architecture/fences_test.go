package architecture

import (
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	databases = []string{"github.com/jackc", module + "/internal/server/ledger"} // and database/sql, by depguard: a driver's interface is in uuid
	clients   = []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"}
	backEnds  = []string{module + "/internal/node/sandbox/process", module + "/internal/node/sandbox/synthetic", module + "/internal/node/sandbox/tart"}
)

// closures says what a package may not depend on, not even through another package.
var closures = []struct {
	pkg    string
	deny   []string // import paths, with all below them
	but    []string // of what is denied, what is not, with all below it
	allow  []string // if set: nothing outside the standard library but these
	strict bool
	reason string
}{
	{pkg: "internal/fleet", strict: true, reason: "the vocabulary: every arrow points here, so none may leave"},
	{pkg: "internal/lib/macvms", strict: true, reason: "a count is a function of what ps prints"},
	{pkg: "internal/lib/faultpoint", strict: true, reason: "it is in every part, and must bring nothing along"},
	{pkg: "internal/lib/logfile", strict: true, allow: []string{"golang.org/x/sys", module + "/internal/lib/logfile"}, reason: "it knows nothing of who logs"},
	{pkg: "internal/lib/httpserver", strict: true, reason: "it is in every part, and knows nothing of what is served"},
	{pkg: "internal/lib/childproc", strict: true, reason: "it knows nothing of what it runs"},
	{pkg: "internal/plan/lifecycle", strict: true, allow: []string{module + "/internal/fleet", module + "/internal/plan/lifecycle"},
		reason: "plans are pure functions, to be tested over every state with no cluster"},
	{pkg: "internal/server/why", deny: []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "github.com/jackc", module + "/internal/server/ledger", module + "/internal/server/cluster",
		module + "/internal/server/admin"}, reason: "the answer is a pure function of evidence, whoever gathers it"},
	{pkg: "internal/plan/scaling", strict: true, allow: []string{module + "/internal/plan/scaling"},
		reason: "plans are pure functions, to be tested over every state with no cluster"},
	{pkg: "internal/jobcontainer/hook", strict: true, reason: "what GitHub's runner sends is a contract, to be tested on recorded input"},
	{pkg: "internal/jobcontainer/steplog", strict: true, reason: "it knows nothing of what it writes"},
	{pkg: "internal/jobcontainer/health", strict: true, allow: []string{module + "/internal/jobcontainer"},
		reason: "whether a service is healthy is a function of results and times"},
	{pkg: "internal/jobcontainer/options", strict: true, allow: []string{module + "/internal/jobcontainer/health", module + "/internal/jobcontainer", "github.com/spf13/pflag"},
		reason: "each step starts the hook, which reads options as docker does: by pflag, which brings nothing along"},
	{pkg: "internal/jobcontainer/servicename", strict: true, allow: []string{module + "/internal/jobcontainer", "github.com/spf13/pflag"},
		reason: "names are a function of a log and of images"},
	{pkg: "internal/jobcontainer/plan", strict: true, allow: []string{module + "/internal/jobcontainer", "github.com/spf13/pflag"},
		reason: "plans are pure functions, to be tested over every promise with no cluster"},
	{pkg: "internal/plan/prepull", strict: true, reason: "on which nodes images are is a function of what was observed"},
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
	{pkg: "internal/dev/tart", strict: true, allow: []string{"github.com/creack/pty", "golang.org/x/sys", "golang.org/x/term", "github.com/spf13/pflag", module + "/internal/dev/tart"},
		reason: "a stand-in that shares code with what is tested on it shares its mistakes; opening a pseudo-terminal is two ioctls, and not a behaviour under test"},
	{pkg: "internal/machost", deny: []string{"k8s.io", "golang.org/x/crypto/ssh", module + "/api", module + "/internal/node", module + "/internal/controller"},
		reason: "what prepares a Mac runs before there is a cluster, and under whatever reaches it"},
	{pkg: "internal/machost/steps", deny: []string{"k8s.io", "golang.org/x/crypto/ssh", module + "/api", module + "/internal/node", module + "/internal/controller"},
		reason: "what prepares a Mac runs before there is a cluster, and under whatever reaches it"},
	{pkg: "internal/dev/mac", strict: true, allow: []string{"github.com/creack/pty", "golang.org/x/sys", "golang.org/x/term", "github.com/spf13/pflag", "howett.net/plist", module + "/internal/dev/mac", module + "/internal/dev/tart"},
		reason: "a stand-in that shares code with what is tested on it shares its mistakes; opening a pseudo-terminal is two ioctls, and not a behaviour under test"},
	{pkg: "internal/dev/mac/pf", strict: true, allow: []string{module + "/internal/dev/mac/pf"},
		reason: "what rules mean is a function of the rules"},
	{pkg: "internal/agent", deny: []string{"k8s.io", "sigs.k8s.io", "github.com/jackc", module + "/internal/server", module + "/api/v1alpha1", module + "/api/adminapi"},
		reason: "the agent runs beside customer code: small, and knowing no cluster and no database"},
	{pkg: "internal/agent/agentcmd", strict: true, allow: []string{module + "/internal/agent", module + "/api/runnerapi", module + "/internal/agent/guestshare", module + "/internal/runnerpod/podenv",
		module + "/internal/jobcontainer", "golang.org/x/sys/unix", module + "/internal/lib/httpserver", module + "/internal/lib/terminationlog", "github.com/spf13/pflag", "github.com/opencontainers/runtime-spec/specs-go"},
		reason: "each probe of each runner starts it"},
	{pkg: "internal/jobcontainer/guard", strict: true, allow: []string{module + "/internal/jobcontainer", module + "/internal/lib/terminationlog", "golang.org/x/sys/unix"},
		reason: "it is the first process of containers that a job may own: small, and knowing no cluster"},
	{pkg: "internal/jobcontainer/guard/client", strict: true, allow: []string{module + "/internal/jobcontainer"},
		reason: "the hook is started for each step"},
	{pkg: "internal/jobcontainer/dockerfile/builder", strict: true, allow: []string{module + "/internal/jobcontainer"},
		reason: "the hook is started for each step"},
	{pkg: "internal/jobcontainer/letter", strict: true, allow: []string{module + "/internal/jobcontainer"}, reason: "it is in every runner's pod, and reads what jobs write"},
	{pkg: "internal/jobcontainer/run", strict: true, allow: []string{module + "/internal/jobcontainer", "github.com/spf13/pflag", "golang.org/x/sys/unix"},
		reason: "each step of a job starts it, and it has nothing but volumes: no network, no token, no cluster"},
	{pkg: "internal/jobcontainer/courier", strict: true, allow: []string{module + "/internal/jobcontainer", module + "/internal/jobcontainer/letter"},
		reason: "it is in every runner's pod, and knows no cluster"},
	{pkg: "internal/jobcontainer/ephemeral", deny: clients, reason: "what a pod shows is a function of the pod"},
	{pkg: "internal/runnerpod/podenv", strict: true, reason: "names for the agent, without Kubernetes' types"},
	{pkg: "api/v1alpha1", deny: []string{"sigs.k8s.io/controller-runtime", module + "/internal"},
		reason: "whoever uses the API types must not inherit a controller"},
	{pkg: "internal/dev/controlplane", deny: []string{"sigs.k8s.io/controller-runtime", module + "/api", module + "/internal/fleet"},
		reason: "the control plane knows Kubernetes, not Bullpen"},
	{pkg: "test/kit/await", strict: true, allow: []string{module + "/test/kit/await"},
		reason: "every package's tests wait, also of those that know no cluster and no database"},
	{pkg: "internal/dev/controlplane/assets", strict: true, allow: []string{module + "/internal/dev/controlplane/assets"},
		reason: "building the devcluster must not wait for client-go to compile"},
	{pkg: "internal/dev/realnode", deny: []string{"sigs.k8s.io/controller-runtime", module + "/api", module + "/internal/fleet", module + "/internal/node"},
		reason: "a node knows Kubernetes, not Bullpen, and shares nothing with the node agent that is compared with it"},
	{pkg: "internal/dev/netns", strict: true, allow: []string{"github.com/vishvananda", "golang.org/x/sys", module + "/internal/dev/netns"},
		reason: "a namespace is the same whatever runs in it"},
	{pkg: "internal/controller/machost", deny: []string{module + "/internal/plan/lifecycle", module + "/internal/controller/pool", module + "/internal/plan/scaling"},
		reason: "who prepares Macs ends no runner"},
	{pkg: "cmd/bullpen", deny: []string{"testing", "github.com/stretchr/testify", "pgregory.net/rapid", module + "/test"},
		reason: "what is for tests does not ship"},
	{pkg: "cmd/bullpen", deny: []string{"helm.sh/helm"},
		reason: "the binary carries what the chart renders to, not the engine that renders it"},
	{pkg: "cmd/bullpen", deny: []string{module + "/internal/cli/arcmigration"},
		reason: "a conversion that a person runs once is in bullpen-migrate, and not in every server's and runner's image"},
	// Kubernetes, the database and the server's parts, each kept out of what needs none of them.
	{pkg: "internal/server/dispatch", deny: slices.Concat(databases, clients, []string{module + "/internal/server/cluster", module + "/internal/server/http"}),
		reason: "the policy declares what it needs in ports, and decides the same for every back end"},
	{pkg: "internal/server/events/intake", deny: slices.Concat(databases, clients), reason: "a payload is taken the same way however it came and wherever it goes"},
	{pkg: "internal/server/recovery", deny: slices.Concat(databases, clients, []string{module + "/internal/server/cluster"}), reason: "verdicts are judged on evidence, which ports gather"},
	{pkg: "internal/server/events/roster", deny: slices.Concat(databases, clients, []string{module + "/internal/server/dispatch", module + "/internal/server/recovery", module + "/internal/github"}),
		reason: "what it needs of others are ports, so that each of them may use it"},
	{pkg: "internal/server/restore/epoch", deny: slices.Concat(databases, clients, []string{module + "/internal/server/dispatch"}), reason: "the database and its copy are ports, so that a test can put either back"},
	{pkg: "internal/server/restore/rebuild", deny: slices.Concat(databases, clients), reason: "the ledger and the cluster are ports"},
	{pkg: "internal/server/events/installations", deny: slices.Concat(databases, clients), reason: "the ledger is a port"},
	{pkg: "internal/server/events/catchup", deny: append([]string{module + "/internal/server/ledger"}, clients...), reason: "it goes by GitHub and the ledger, never by pods"},
	{pkg: "internal/server/periodic", deny: slices.Concat(clients, []string{module}), reason: "how passes run does not depend on what they do"},
	{pkg: "internal/server/periodic/retention", deny: slices.Concat(databases, []string{module}), reason: "what is removed after how long is a pure function"},
	{pkg: "internal/server/history", strict: true, allow: []string{module + "/internal/server/history"}, reason: "samples and series are values; the ledger and the cluster are ports"},
	{pkg: "internal/server/poolaudit", strict: true, allow: []string{module + "/internal/server/poolaudit", module + "/api/adminapi", module + "/internal/fleet"},
		reason: "what changed is a function of values; the ledger and the cluster are ports"},
	{pkg: "internal/lib/auditchange", strict: true, allow: []string{module + "/internal/lib/auditchange", module + "/internal/fleet"}, reason: "words are a function of two states"},
	{pkg: "internal/server/console/chart", strict: true, allow: []string{module + "/internal/server/console/chart"}, reason: "where a line is drawn is a function of numbers"},
	{pkg: "internal/server/admin", deny: slices.Concat(databases, clients), reason: "the API shows and changes what its ports give"},
	{pkg: "internal/server/console", deny: slices.Concat(databases, clients), reason: "pages show what the admin API knows, and nothing past it"},
	{pkg: "internal/server/http", deny: slices.Concat(databases, []string{"sigs.k8s.io/controller-runtime"}), reason: "handlers ask and answer; package dispatch decides and its ports store"},
	{pkg: "internal/server/cluster", deny: slices.Concat(databases, []string{"sigs.k8s.io/controller-runtime"}), reason: "it shows the cluster, and decides nothing by the ledger"},
	{pkg: "internal/server/ledger", deny: append([]string{module + "/internal/server/http", module + "/internal/server/cluster"}, clients...), reason: "what the ledger decides, it decides from rows alone"},
	{pkg: "internal/dev/postgres", strict: true, allow: []string{module + "/internal/lib/childproc"}, reason: "starting a database needs no client of it"},
	{pkg: "internal/github", deny: slices.Concat(databases, []string{"k8s.io", "sigs.k8s.io", module + "/internal/dev/github/standin"}), reason: "it translates between GitHub and the fleet's words, and needs no other part"},
	{pkg: "internal/dev/github/standin", deny: slices.Concat(databases, []string{"k8s.io", "sigs.k8s.io", module}), but: []string{module + "/internal/dev/github/standin"},
		reason: "it is the other side of the wire: shared code would share its mistakes"},
	{pkg: "internal/dev/github/standin/workflow", deny: []string{"net/http", module}, reason: "a scheduler of workflows is pure, and shared by the stand-in and the runner"},
	{pkg: "internal/dev/runner", deny: []string{module}, but: []string{module + "/internal/dev/github/standin/workflow"}, reason: "a stand-in that shares code with what is tested on it shares its mistakes; opening a pseudo-terminal is two ioctls, and not a behaviour under test"},
	{pkg: "internal/dev/load", deny: slices.Concat(databases, clients, []string{module + "/internal/dev/github/standin"}), reason: "its ports connect it, to the stand-in or to GitHub"},
	{pkg: "internal/cli/commandline", strict: true, allow: []string{"github.com/spf13", "github.com/inconshreveable/mousetrap", module + "/internal/cli/commandline"},
		reason: "how a command line is refused is the same for every program, whatever its commands do"},
	{pkg: "internal/cli/reach", deny: append([]string{module}, clients...), reason: "it explains errors, and sends no request"},
	{pkg: "internal/cli/fields", deny: append([]string{module}, clients...), but: []string{"k8s.io/client-go/util/jsonpath", "k8s.io/client-go/third_party"},
		reason: "it reads values, wherever they come from"},
	{pkg: "internal/cli/poolchange", deny: append([]string{module}, clients...), reason: "it decides from the pool that was read, and writes nothing"},
	{pkg: "internal/cli/servers", deny: clients, reason: "a configuration file is read without a cluster"},
	{pkg: "internal/dev/onebox/poolcheck", deny: []string{"sigs.k8s.io/controller-runtime", module + "/internal/dev/controlplane"},
		reason: "a pool is refused before there is an API server"},
	{pkg: "internal/cli/arcmigration", deny: clients, reason: "a conversion is a function of the manifests"},
	{pkg: "internal/runnerpod", deny: slices.Concat(databases, clients), reason: "what a pod looks like is said once, to the server, the controller and the node agent"},
	{pkg: "internal/controller", deny: slices.Concat(databases[:1], []string{module + "/internal/server/ledger", module + "/internal/server/http", module + "/internal/server/recovery", module + "/internal/server/cluster", module + "/internal/server/admin"}),
		reason: "what the controller needs of the server comes over HTTP"},
	{pkg: "internal/controller/serverclient", strict: true, allow: []string{module + "/api/runnerapi", module + "/internal/plan/lifecycle", module + "/internal/fleet"},
		reason: "a client knows the contract, and nothing of the server behind it"},
	{pkg: "internal/controller/nodes", deny: append([]string{module + "/internal/plan/lifecycle"}, clients...), reason: "what a node has room for is a pure function of the node"},
	{pkg: "internal/jobcontainer/image", deny: slices.Concat(databases, clients, []string{"k8s.io", module}), but: []string{module + "/internal/jobcontainer", module + "/internal/jobcontainer/imagename"},
		reason: "what a registry has is the same for every cluster"},
	{pkg: "internal/jobcontainer/imagename", strict: true, allow: []string{"github.com/distribution/reference", "github.com/opencontainers/go-digest"}, reason: "what a pool permits is read in one way, by who builds pods and by who asks registries"},
	{pkg: "internal/controller/removal", deny: []string{module + "/internal/controller/pool", module + "/internal/controller/selfregistering/runnerowner", module + "/internal/controller/selfregistering/registered"},
		reason: "the one remover does not depend on how a kind of runner is planned"},
	{pkg: "internal/controller/selfregistering/runnerowner", deny: []string{module + "/internal/controller/selfregistering/runnerreplicaset", module + "/internal/controller/selfregistering/runnerset"}, reason: "one engine plans for every backing (RUN-1)"},
	{pkg: "internal/node", deny: append([]string{module + "/internal/controller", module + "/internal/server/http", module + "/internal/server/dispatch"}, backEnds...), reason: "the agent knows the port of its sandbox alone"},
	{pkg: "internal/node/kubeletapi", deny: append([]string{module + "/internal/node"}, backEnds...), but: []string{module + "/internal/node/sandbox"}, reason: "it serves what any sandbox has"},
	{pkg: "internal/node/kubeletapi", deny: backEnds, reason: "it serves what any sandbox has"},
	{pkg: "test/kit/podnetwork", deny: []string{module}, but: []string{module + "/internal/dev/netns"}, reason: "a network of pods knows neither nodes nor what runs in it"},
	{pkg: "internal/node/sandbox", deny: append([]string{module}, clients...), reason: "the port knows none of its back ends"},
	{pkg: "internal/node/sandbox/process", deny: append([]string{module + "/internal"}, clients...), but: []string{module + "/internal/node/sandbox"}, reason: "a back end knows its port, and no cluster"},
	{pkg: "internal/node/sandbox/synthetic", deny: append([]string{module + "/internal"}, clients...), but: []string{module + "/internal/node/sandbox"}, reason: "a back end knows its port, and no cluster"},
	{pkg: "internal/node/sandbox/tart", deny: append([]string{module + "/internal/node"}, clients...), but: []string{module + "/internal/node/sandbox", module + "/internal/node/tartcli"},
		reason: "a back end knows its port, and no cluster"},
	{pkg: "test/kit/podconformance", deny: []string{module}, reason: "the suite is the same for every node, and knows none of them"},
	{pkg: "test/kit/sandboxtest", deny: backEnds, reason: "the suite is the same for every back end"},
	{pkg: "internal/machost/remote", deny: []string{module}, but: []string{module + "/internal/machost", module + "/internal/lib/childproc", module + "/internal/lib/faultpoint"},
		reason: "a bootstrap over SSH uploads the program, and needs no other part of it"},
	{pkg: "internal/server/clock", deny: append([]string{module}, databases...), reason: "it asks the time of a port, and every part goes by it"},
	{pkg: "internal/lib/credential", deny: []string{module}, reason: "it takes files into use, whatever is in them"},
	{pkg: "internal/dev/onebox", deny: []string{module + "/internal/server/dispatch", module + "/internal/server/http", module + "/internal/server/recovery", module + "/internal/controller", module + "/internal/server/cluster", module + "/internal/server/ledger"},
		but: []string{module + "/internal/dev/postgres"}, reason: "it speaks to the parts as processes, as an installation does"},
	{pkg: "test/kit", deny: []string{module + "/internal/controller", module + "/internal/server/http", module + "/internal/server/dispatch", module + "/internal/node", module + "/internal/server/ledger"},
		reason: "the tests of those packages use it"},
	{pkg: "test/kit/chaos", deny: []string{module}, but: []string{module + "/internal/dev/controlplane", module + "/internal/lib/faultpoint", module + "/internal/lib/childproc"},
		reason: "it breaks what the product stands on, and needs no other part of it"},
	{pkg: "test/rights", deny: []string{module}, reason: "roles are compared with what an API server's log shows, not with what the product claims"},
	// What holds files, words or pure functions needs the standard library only.
	{pkg: "api/openapi", strict: true, reason: "clients can afford it"},
	{pkg: "charts", strict: true, reason: "it carries files"},
	{pkg: "examples", strict: true, reason: "it carries files"},
	{pkg: "api/adminapi", strict: true, reason: "it is a contract: both sides use it, and so may others"},
	{pkg: "api/runnerapi", strict: true, reason: "it is a contract, and the agent's binary must stay small"},
	{pkg: "internal/runnerpod/podenv", strict: true, reason: "the agent must know these names without the API types of Kubernetes"},
	{pkg: "internal/agent/guestshare", strict: true, reason: "it is in the guest, beside customer code"},
	{pkg: "internal/dev/plot", strict: true, reason: "a picture is a pure function of its data"},
	{pkg: "internal/dev/stats", strict: true, reason: "a quantile is a pure function of its samples"},
	{pkg: "test/docs", strict: true, reason: "pages are read without the program that they describe"},
	{pkg: "test/incidents", strict: true, reason: "a registry is written to a page, and imports nothing of what it tells about"},
	{pkg: "test/runnerkinds", strict: true, reason: "a registry is written to a page, and imports nothing of what it tells about"},
	{pkg: "test/scale/growth", strict: true, allow: []string{module + "/internal/dev/plot", module + "/internal/dev/stats"}, reason: "a judgement is a pure function of its samples"},
	{pkg: "test/soak/schedule", strict: true, reason: "a schedule is a pure function of its seed"},
}

func TestClosures(t *testing.T) {
	own, all := modulePackages(t)
	for _, fence := range closures {
		t.Run(fence.pkg, func(t *testing.T) {
			p, exists := own[fence.pkg]
			require.True(t, exists, "a fence around a package that does not exist guards nothing")
			for _, named := range slices.Concat(fence.deny, fence.but, fence.allow) {
				requireNamesSomething(t, own, named)
			}
			for _, dependency := range p.Deps {
				require.False(t, withinAny(dependency, fence.deny) && !withinAny(dependency, fence.but), "%s depends on %s: %s", fence.pkg, dependency, fence.reason)
				if fence.strict && !all[dependency].Standard {
					require.True(t, withinAny(dependency, fence.allow), "%s depends on %s: %s", fence.pkg, dependency, fence.reason)
				}
			}
		})
	}
}

// directs says what a package may not name itself, though what it uses may depend on it.
var directs = []struct {
	pkg    string
	deny   []string
	reason string
}{
	{pkg: "internal/server/dispatch", deny: []string{"net/http"}, reason: "package server speaks HTTP; the policy is the same for every transport"},
	{pkg: "internal/server/events/intake", deny: []string{"net/http"}, reason: "a payload is the same however it came"},
	{pkg: "internal/server/events/installations", deny: []string{"net/http"}, reason: "GitHub is spoken to by package github"},
	{pkg: "internal/server/ledger", deny: []string{"net/http"}, reason: "the ledger serves nothing"},
	{pkg: "internal/dev/github/standin/workflow", deny: []string{"os"}, reason: "a scheduler of workflows is pure"},
	{pkg: "internal/cli", deny: []string{module + "/internal/server/dispatch", module + "/internal/server/admin", module + "/internal/server/ledger", module + "/internal/server/recovery", module + "/internal/server/http"},
		reason: "commands speak to the server over its API; doctor alone looks behind it"},
	{pkg: "internal/cli/top", deny: []string{module + "/internal/server/dispatch", module + "/internal/server/admin", module + "/internal/server/ledger", module + "/internal/server/recovery", module + "/internal/server/http"},
		reason: "the screen shows what the admin API answers"},
}

func TestDirects(t *testing.T) {
	own, _ := modulePackages(t)
	for _, fence := range directs {
		t.Run(fence.pkg, func(t *testing.T) {
			p, exists := own[fence.pkg]
			require.True(t, exists, "a fence around a package that does not exist guards nothing")
			for _, named := range fence.deny {
				requireNamesSomething(t, own, named)
			}
			for _, imported := range p.Imports {
				require.False(t, slices.Contains(fence.deny, imported), "%s imports %s: %s", fence.pkg, imported, fence.reason)
			}
		})
	}
}

// requireNamesSomething holds a fence to packages of the module that exist: one that has moved would be fenced no more, and nothing would say so.
func requireNamesSomething(t *testing.T, own map[string]goPackage, named string) {
	t.Helper()
	short, ours := strings.CutPrefix(named, module+"/")
	if !ours {
		return
	}
	for path := range own {
		if within(path, short) {
			return
		}
	}
	require.Fail(t, "a fence names a package that does not exist", named)
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
	{library: "sigs.k8s.io/controller-runtime", only: []string{"internal/controller", "internal/dev/onebox", "test/kit", "test"}, tests: true,
		reason: "the rest of the product stays plain"},
	{library: "github.com/google/go-containerregistry", only: []string{"internal/jobcontainer/image", "internal/jobcontainer/dockerfile", "internal/dev/realnode", "test/kit/registrytest"}, tests: true,
		reason: "names of images come from workflows: one package asks registries, within limits"},
	{library: "helm.sh/helm/v4", only: []string{"test/kit/helmchart"},
		reason: "one package knows Helm's engine, and it does not ship"},
	{library: "helm.sh/helm/v3", only: []string{"test/kit/helmchart"},
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

// What a package may not import is said by the fences above, which are executed. Prose of it drifts: a doc.go forbade an import that four
// files had.
func TestPackageComments_SayNothingOfImports(t *testing.T) {
	files := repositoryFiles(t)
	read := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Base(name) == "doc.go" && name != "test/architecture/doc.go" {
			read++
			require.Empty(t, saidOfImports(files[name]), "%s: fence it in test/architecture/fences_test.go or .golangci.yaml, with the reason, and say nothing of it here", name)
		}
	}
	require.Greater(t, read, 100, "no package comment was read")
	for _, text := range []string{"// It must not import SQL.", "// It may not\n// import SQL.", "// It imports nothing.", "// Only tests may import it.", "// It must be imported by tests only."} {
		require.NotEmpty(t, saidOfImports(text), text)
	}
	require.Empty(t, saidOfImports("// It is important, and important parts begin in a.go.\n\nimport _ \"embed\""))
}

var importing = regexp.MustCompile(`(?m)^//.*\b[Ii]mport(?:s|ed|ing)?\b.*`)

// saidOfImports are the lines of comments that speak of imports.
func saidOfImports(text string) []string { return importing.FindAllString(text, -1) }

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
