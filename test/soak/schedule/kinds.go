package schedule

import (
	"math/rand/v2"
	"slices"
	"time"
)

// The kinds of faults and of an administrator's changes. Their effects are in the table below and, in full, in package soak.
const (
	ServerKill      = "server-kill"
	ServerTerminate = "server-terminate"
	ServerFreeze    = "server-freeze"
	ServersKill     = "servers-kill"
	ControllerKill  = "controller-kill"
	ControllerEnd   = "controller-terminate"
	ControllerStill = "controller-freeze"
	AgentKill       = "agent-kill"
	AgentFreeze     = "agent-freeze"
	MachineKill     = "machine-kill"
	PostgresRestart = "postgres-restart"
	PostgresKill    = "postgres-kill"
	PostgresCut     = "postgres-cut"
	PostgresStall   = "postgres-stall"
	PostgresRestore = "postgres-restore"
	PostgresFull    = "postgres-full"
	APIRestart      = "api-restart"
	APIKill         = "api-kill"
	APIFreeze       = "api-freeze"
	APIConflicts    = "api-conflicts"
	PollsCut        = "polls-cut"
	PollsStall      = "polls-stall"
	GitHubDown      = "github-down"
	GitHub          = "github"
	JobCancel       = "job-cancel"
	PoolRoll        = "pool-roll"
	PoolZero        = "pool-zero"
	PoolRename      = "pool-rename"
	NodeCordon      = "node-cordon"
	NodeDelete      = "node-delete"
	NodeDrain       = "node-drain"
	PodDelete       = "pod-delete"
	PodStop         = "pod-stop"
	NodeEmpty       = "node-empty"
	NodeTerminate   = "node-terminate"
	LimitChange     = "limit-change"
	DieAt           = "die-at"
	ClockSkew       = "clock-skew"
)

// Names of what is hit.
const (
	Server1      = "server-1"
	Server2      = "server-2"
	Controller   = "controller"
	Controller2  = "controller-2" // only in soaks that have two
	Node1        = "node-1"
	Node2        = "node-2"
	NodeReal     = "node-real"
	Postgres     = "postgres"
	APIServer    = "api-server"
	Polls        = "polls"
	GitHubItself = "github"
	PoolBulk     = "bulk"
	PoolAuto     = "auto"
	PoolReal     = "real"
)

// kind is how a fault is dealt: how many cards of it are in the deck, its possible targets and how long it
// lasts.
type kind struct {
	name    string
	cards   int
	targets []string
	least   time.Duration
	most    time.Duration
	// detail fills what the kind has beyond that; without lists what is left out.
	detail func(r *rand.Rand, s *Step, without []string)
}

var servers = []string{Server1, Server2}

// points are the product's fault points: instants at which a process dies by its own hand, between two steps that belong
// together. Package soak checks that they are all of them.
var points = []string{
	"webhook-committed", "claim-inserted", "mint-intended", "mint-answered", "mint-recorded", "answer-written", "ack-received", "ack-recorded",
	"before-stamp", "claim-taken", "registration-removed", "claim-ended", "account-created", "removal-granted", "pod-deleted", "container-started", "adopting",
}

// Points lists them.
func Points() []string { return slices.Clone(points) }

// Kinds are the names of all kinds, in the order of the table.
func Kinds() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

// kinds is the deck. A duration is, for what is killed, how long it stays away.
var kinds = []kind{
	{name: ServerKill, cards: 4, targets: servers, most: 5 * time.Second},
	{name: ServerTerminate, cards: 2, targets: servers, most: 5 * time.Second},
	{name: ServerFreeze, cards: 2, targets: servers, least: time.Second, most: 40 * time.Second}, // a mint's lease is 30 s
	{name: ServersKill, cards: 1, targets: []string{Server1 + "+" + Server2}, most: 10 * time.Second},
	{name: ControllerKill, cards: 3, targets: []string{Controller}, most: 5 * time.Second},
	{name: ControllerEnd, cards: 1, targets: []string{Controller}, most: 5 * time.Second},
	{name: ControllerStill, cards: 1, targets: []string{Controller}, least: time.Second, most: 20 * time.Second},
	{name: AgentKill, cards: 3, targets: []string{Node1, Node2, NodeReal}, most: 5 * time.Second},
	{name: AgentFreeze, cards: 1, targets: []string{Node1, Node2, NodeReal}, least: time.Second, most: 15 * time.Second},
	{name: MachineKill, cards: 1, targets: []string{Node1, Node2}, most: 5 * time.Second},
	{name: PostgresRestart, cards: 1, targets: []string{Postgres}},
	{name: PostgresKill, cards: 1, targets: []string{Postgres}, most: 3 * time.Second},
	{name: PostgresCut, cards: 2, targets: servers, most: 3 * time.Second},
	{name: PostgresStall, cards: 1, targets: servers, least: time.Second, most: 15 * time.Second},
	{name: PostgresRestore, cards: 1, targets: []string{Postgres}, most: 2 * time.Second},
	{name: PostgresFull, cards: 2, targets: []string{Postgres}, least: time.Second, most: 10 * time.Second}, // takes a disk of its own
	{name: APIRestart, cards: 1, targets: []string{APIServer}},
	{name: APIKill, cards: 1, targets: []string{APIServer}},
	{name: APIFreeze, cards: 1, targets: []string{APIServer}, least: time.Second, most: 10 * time.Second},
	{name: APIConflicts, cards: 1, targets: []string{PoolBulk}, least: 2 * time.Second, most: 6 * time.Second},
	{name: PollsCut, cards: 2, targets: []string{Polls}, most: time.Second},
	{name: PollsStall, cards: 1, targets: []string{Polls}, least: time.Second, most: 10 * time.Second},
	{name: GitHubDown, cards: 1, targets: []string{GitHubItself}, least: time.Second, most: 10 * time.Second},
	{name: GitHub, cards: 12, targets: []string{GitHubItself}, least: 2 * time.Second, most: 20 * time.Second, detail: dealGitHub},
	{name: JobCancel, cards: 2, targets: []string{"queued", "running"}},
	{name: PoolRoll, cards: 1, targets: []string{PoolBulk, PoolAuto}},
	{name: PoolZero, cards: 1, targets: []string{PoolBulk}, least: 2 * time.Second, most: 8 * time.Second},
	{name: PoolRename, cards: 1, targets: []string{PoolBulk}},
	{name: NodeCordon, cards: 1, targets: []string{Node1, Node2}, least: 2 * time.Second, most: 10 * time.Second},
	{name: NodeDelete, cards: 1, targets: []string{Node1, Node2}},
	{name: NodeDrain, cards: 1, targets: []string{Node1, Node2}, least: 2 * time.Second, most: 10 * time.Second},
	{name: PodDelete, cards: 1, targets: []string{"busy"}, detail: func(r *rand.Rand, s *Step, _ []string) {
		s.Value = r.IntN(2) // 1: without any grace
	}},
	{name: PodStop, cards: 4, targets: []string{PoolBulk, PoolBulk, PoolBulk, PoolBulk, PoolAuto, PoolReal}, least: 5 * time.Second, most: 10 * time.Second, detail: dealStop},
	{name: NodeEmpty, cards: 1, targets: []string{Node1, Node2, NodeReal}, least: 2 * time.Second, most: 10 * time.Second},
	{name: NodeTerminate, cards: 1, targets: []string{Node1, Node2}},
	{name: DieAt, cards: 10, targets: points, least: 10 * time.Second, most: 20 * time.Second, detail: func(r *rand.Rand, s *Step, _ []string) { s.Value = 1 + r.IntN(3) }},
	{name: ClockSkew, cards: 1, targets: servers, least: 5 * time.Second, most: 20 * time.Second, detail: func(r *rand.Rand, s *Step, _ []string) {
		s.Value = []int{-300, -60, -10, 10, 60, 300}[r.IntN(6)] // seconds; recovery's patience here is 5
	}},
	{name: LimitChange, cards: 1, targets: []string{"1", "2", "3"}, detail: func(r *rand.Rand, s *Step, _ []string) { s.Value = 4 + r.IntN(12) }},
}

// After what a pod is stopped: Fault of PodStop.
const (
	AfterClaim = "claimed"  // a job was claimed for it
	AfterStart = "acquired" // its runner has acquired a job
)

// dealStop chooses when: mostly within a second of the claim, or between the acquisition of a job and the start of its worker.
func dealStop(r *rand.Rand, s *Step, _ []string) {
	s.Fault, s.Value = AfterClaim, r.IntN(1000) // milliseconds
	switch r.IntN(4) {
	case 0:
		s.Value = r.IntN(5000)
	case 1:
		s.Value = r.IntN(150) // its configuration is on its way, or its listener starts
	case 2:
		s.Fault, s.Value = AfterStart, r.IntN(500)
	}
}

// gitHubFault is what may go wrong at GitHub, as the stand-in names it.
type gitHubFault struct {
	name     string
	statuses []int
	routes   []string
	percent  int
	delay    time.Duration
	// installation limits it to one account.
	installation bool
}

// GitHubFaults are the names of GitHub's faults that are dealt.
func GitHubFaults() []string {
	names := make([]string, len(gitHubFaults))
	for i, f := range gitHubFaults {
		names[i] = f.name
	}
	return names
}

// Left out are cancellations, which JobCancel does one by one, and what takes minutes by its nature.
var gitHubFaults = []gitHubFault{
	{name: "hook-drop", percent: 50},
	{name: "hook-vanish", percent: 30},
	{name: "hook-answered", percent: 30},
	{name: "hook-late-answer", percent: 50},
	{name: "hook-delay", percent: 50, delay: 8 * time.Second},
	{name: "hook-double", percent: 80},
	{name: "hook-reorder", percent: 50},
	{name: "hook-signature", percent: 50},
	{name: "rest-status", percent: 60, statuses: []int{500, 502, 503}, routes: anyCall},
	{name: "rest-status", percent: 100, statuses: []int{429, 403}, delay: 2 * time.Second, routes: anyCall},
	{name: "rest-status", percent: 40, statuses: []int{404, 403, 422}, routes: anyCall},
	{name: "rest-latency", percent: 50, delay: 3 * time.Second, routes: anyCall},
	{name: "rest-latency", percent: 30, delay: 12 * time.Second, routes: []string{"generate-jitconfig"}},
	{name: "rest-cut", percent: 50, routes: []string{"generate-jitconfig", "/app/", "actions/runners"}},
	{name: "rest-cut-before", percent: 50, routes: []string{"generate-jitconfig", "/app/", "actions/runners"}},
	{name: "rate-empty", delay: 3 * time.Second, routes: []string{""}},
	{name: "rate-secondary", percent: 50, delay: 3 * time.Second, routes: anyCall},
	{name: "scope-forbidden", installation: true},
	{name: "scope-missing", installation: true},
	// Of ours, not of runners: a job whose own token is refused for good is lost in any case.
	{name: "token-expired", percent: 30, routes: []string{"generate-jitconfig", "actions/runners", "actions/jobs"}},
	{name: "session-conflict", percent: 50},
	{name: "session-refused", percent: 30},
	{name: "runner-cut", percent: 10},
	{name: "runner-starved", percent: 30},
	{name: "assign-different", percent: 100},
	{name: "busy-hidden", percent: 100, delay: 10 * time.Second},
	{name: "remove-busy", percent: 100},
}

var anyCall = []string{"", "generate-jitconfig", "actions/runners", "actions/jobs"}

// dealGitHub chooses one of them.
func dealGitHub(r *rand.Rand, s *Step, without []string) {
	left := slices.DeleteFunc(slices.Clone(gitHubFaults), func(f gitHubFault) bool { return slices.Contains(without, f.name) })
	f := left[r.IntN(len(left))]
	s.Fault, s.Percent, s.Delay = f.name, f.percent, Duration(f.delay)
	if len(f.statuses) > 0 {
		s.Status = f.statuses[r.IntN(len(f.statuses))]
	}
	if len(f.routes) > 0 {
		s.Route = f.routes[r.IntN(len(f.routes))]
	}
	if f.installation {
		s.Account = 1 + r.IntN(Accounts)
	}
}
