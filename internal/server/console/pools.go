package console

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// poolsView is all pools.
type poolsView struct {
	Pools  []adminapi.Pool
	Frozen string // why no job is dispatched at all
	// Unserved are the queued jobs that no pool serves; nil if it is unknown.
	Unserved *adminapi.UnservedJobs
}

func readPools(v *visitor) (poolsView, error) {
	var list adminapi.PoolList
	err := v.get(adminapi.PathPools, &list)
	return poolsView{Pools: list.Pools, Frozen: list.Frozen, Unserved: list.Unserved}, err
}

func loadPools(_ *Console, v *visitor, _ location) (string, any, error) {
	view, err := readPools(v)
	return "Pools", view, err
}

// poolView is one pool, and the runners of it.
type poolView struct {
	Pool    adminapi.Pool
	Blocked []counted
	Runners []adminapi.Runner
	Stages  []choice
	At      string // the page's path
	First   string
	Next    string
	// Intake says what the pool's means, and Commands change it: the console cannot (ADR 0029).
	Intake   string
	Commands []string
	Scale    string // the command that changes how many runners there may be
	History  historyView
}

func loadPool(_ *Console, v *visitor, at location) (string, any, error) {
	namespace, name := at.path("namespace"), at.path("pool")
	own := url.PathEscape(namespace) + "/" + url.PathEscape(name)
	stage := at.query.Get("stage")
	view := poolView{At: "/ui/pools/" + own}
	for _, s := range adminapi.RunnerStages() {
		view.Stages = append(view.Stages, choice{Value: s, Text: s, Selected: s == stage})
	}
	if err := v.get(adminapi.PathPools+"/"+own, &view.Pool); err != nil {
		return "", nil, err
	}
	view.Intake, view.Commands = intake(view.Pool)
	view.Scale = scaleCommand(view.Pool)
	if view.Pool.Demand != nil {
		for _, reason := range slices.Sorted(maps.Keys(view.Pool.Demand.Blocked)) {
			view.Blocked = append(view.Blocked, counted{Name: reason, N: view.Pool.Demand.Blocked[reason]})
		}
	}
	keep := url.Values{}
	if stage != "" {
		keep.Set("stage", stage)
	}
	var err error
	if view.History, err = readHistory(v, adminapi.PathPools+"/"+own+"/history", at, view.At, keep); err != nil {
		return "", nil, err
	}
	query, base := url.Values{"pool": {namespace + "/" + name}, "limit": {strconv.Itoa(jobsPerPage)}}, url.Values{}
	if stage != "" {
		query.Set("stage", stage)
		base.Set("stage", stage)
	}
	if after := at.query.Get("after"); after != "" {
		query.Set("after", after)
		view.First = view.At + "?" + base.Encode()
	}
	var list adminapi.RunnerList
	if err := v.get(adminapi.PathRunners+"?"+query.Encode(), &list); err != nil {
		return "", nil, err
	}
	view.Runners = list.Runners
	if list.Next != "" {
		base.Set("after", list.Next)
		view.Next = view.At + "?" + base.Encode()
	}
	return "Pool " + name, view, nil
}

// intake says what a pool's means, and what makes it another.
func intake(pool adminapi.Pool) (means string, commands []string) {
	var verbs []string
	switch v1alpha1.Intake(pool.Intake) {
	case v1alpha1.IntakePaused:
		means, verbs = "Its runners stay, and get no jobs.", []string{"resume", "drain"}
	case v1alpha1.IntakeDrained:
		means, verbs = "Its runners get no jobs, and idle ones are removed.", []string{"resume", "pause"}
	default:
		means, verbs = "Its runners get jobs.", []string{"pause", "drain"}
	}
	for _, verb := range verbs {
		commands = append(commands, "bullpen pool "+verb+" "+pool.Name+" -n "+pool.Namespace)
	}
	return means, commands
}

// scaleCommand changes the number of runners, or the maximum of an autoscaled pool.
func scaleCommand(pool adminapi.Pool) string {
	verb, flag := "scale", "--replicas"
	if pool.Autoscaled {
		verb, flag = "set", "--max-replicas"
	}
	return "bullpen pool " + verb + " " + pool.Name + " " + flag + " N -n " + pool.Namespace
}

// nodesView is the machines that runners are on.
type nodesView struct {
	Nodes []nodeView
	Many  bool // there are more runners than were counted
	Hosts []adminapi.Host
	Macs  bool // MacHosts are reconciled
}

// nodeView is one machine. Nowhere is where runners are that no machine was found for yet.
type nodeView struct {
	Name                                string
	Runners, Starting, Idle, Busy, Over int64
	Pools                               []string
}

// mostRunnerPages is how many pages of runners are counted.
const mostRunnerPages = 20

func loadNodes(_ *Console, v *visitor, _ location) (string, any, error) {
	nodes := map[string]*nodeView{}
	after, view := "", nodesView{}
	for range mostRunnerPages {
		query := url.Values{"limit": {strconv.Itoa(adminapi.MaxPage)}}
		if after != "" {
			query.Set("after", after)
		}
		var list adminapi.RunnerList
		if err := v.get(adminapi.PathRunners+"?"+query.Encode(), &list); err != nil {
			return "", nil, err
		}
		for _, runner := range list.Runners {
			node := nodes[runner.Node]
			if node == nil {
				node = &nodeView{Name: runner.Node}
				nodes[runner.Node] = node
			}
			node.add(runner)
		}
		if after = list.Next; after == "" {
			break
		}
	}
	view.Many = after != ""
	var hosts adminapi.HostList
	if err := v.get(adminapi.PathHosts, &hosts); err != nil {
		return "", nil, err
	}
	view.Hosts, view.Macs = hosts.Hosts, hosts.Watched
	for _, node := range nodes {
		slices.Sort(node.Pools)
		view.Nodes = append(view.Nodes, *node)
	}
	slices.SortFunc(view.Nodes, func(a, b nodeView) int { return cmp.Compare(a.Name, b.Name) })
	return "Nodes", view, nil
}

func (n *nodeView) add(runner adminapi.Runner) {
	n.Runners++
	switch runner.Stage {
	case "starting":
		n.Starting++
	case "idle":
		n.Idle++
	case "terminating", "finished":
		n.Over++
	default:
		n.Busy++
	}
	if !slices.Contains(n.Pools, runner.Pool) {
		n.Pools = append(n.Pools, runner.Pool)
	}
}
