package soak

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/test/soak/check"
)

// auditPolicy has the API server record every change to runners, with what was sent: the users that deleted objects, and
// the written statuses. With requests it also records all requests of the product's parts and node agents.
func auditPolicy(requests bool) string {
	read, rest := "", ""
	if requests {
		const parts = "    userGroups: ['system:serviceaccounts:" + systemNamespace + "', 'system:nodes']"
		read, rest = "  - level: Metadata\n    verbs: [get, list, watch]\n"+parts, "  - level: Metadata\n"+parts
	}
	return `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
` + read + `
  - level: None
    verbs: [get, list, watch]
  - level: Metadata
    resources:
      - group: ""
        resources: [serviceaccounts/token, secrets]
  - level: Request
    namespaces: [` + runnerNamespace + `]
` + rest + `
  - level: None
`
}

func (s *System) evidence(name string) string { return filepath.Join(s.evidenceDir(), name) }

// argumentWatch polls the command lines of all our processes, and keeps each that it has not seen: a secret in one of
// them would be read by every user of the machine.
type argumentWatch struct{ done sync.WaitGroup }

const lookEvery = 500 * time.Millisecond

func watchArguments(ctx context.Context, dir string) *argumentWatch {
	w := &argumentWatch{}
	w.done.Go(func() {
		seen := map[string]bool{}
		path := filepath.Join(dir, "evidence", check.FileArguments)
		for pause(ctx, lookEvery) {
			var fresh []string
			dirs, _ := filepath.Glob("/proc/[0-9]*")
			for _, directory := range dirs {
				data, err := os.ReadFile(filepath.Join(directory, "cmdline"))
				if text := string(data); err == nil && text != "" && !seen[text] && ours(directory, text, dir) {
					seen[text] = true
					fresh = append(fresh, strings.ReplaceAll(text, "\x00", " "))
				}
			}
			if len(fresh) > 0 {
				_ = appendLines(path, fresh) // the next look tries the next ones
			}
		}
	})
	return w
}

func (w *argumentWatch) wait() { w.done.Wait() }

// ours reports whether a process is the soak's: it names the state directory, works in it, or descends from this process.
func ours(directory, text, dir string) bool {
	if strings.Contains(text, dir) {
		return true
	}
	stat, err := os.ReadFile(filepath.Join(directory, "stat"))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid())
}

// podWatch polls the pods, and writes down which have appeared and which are gone.
type podWatch struct{ done sync.WaitGroup }

func (s *System) watchPods(ctx context.Context) *podWatch {
	w := &podWatch{}
	w.done.Go(func() {
		var before map[string]string // UID → name; nil until the first look
		for pause(ctx, lookEvery) {
			pods, err := s.kube.CoreV1().Pods(runnerNamespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue // the API server is one of those that are broken on purpose
			}
			now := map[string]string{}
			for i := range pods.Items {
				now[string(pods.Items[i].UID)] = pods.Items[i].Name
			}
			if records := changes(before, now, time.Now().UTC()); len(records) > 0 {
				if appendLines(s.evidence(check.FilePods), records) != nil {
					continue // the next look tells it
				}
			}
			before = now
		}
	})
	return w
}

func changes(before, now map[string]string, at time.Time) []check.PodRecord {
	var records []check.PodRecord
	if before == nil {
		records = append(records, check.PodRecord{At: at, Event: "all", There: slices.Sorted(maps.Keys(now))})
	}
	for uid, name := range now {
		if _, there := before[uid]; !there {
			records = append(records, check.PodRecord{At: at, Event: "there", Pod: name, UID: uid})
		}
	}
	for uid, name := range before {
		if _, there := now[uid]; !there {
			records = append(records, check.PodRecord{At: at, Event: "gone", Pod: name, UID: uid})
		}
	}
	return records
}

func (w *podWatch) wait() { w.done.Wait() }

// writeGitHub writes GitHub's ledger.
func (s *System) writeGitHub() error {
	return writeJSON(s.evidence(check.FileGitHub), s.github.server.Ledger())
}

// writeRows writes every row of the database, and drains its history.
func (s *System) writeRows(ctx context.Context) error {
	if err := s.database.drain(ctx); err != nil {
		return err
	}
	rows, err := s.database.dump(ctx)
	if err != nil {
		return err
	}
	return writeJSON(s.evidence(check.FileRows), rows)
}

// remaining is what there is of runners in the cluster.
func (s *System) remaining(ctx context.Context) (check.Final, error) {
	final := check.Final{At: time.Now().UTC()}
	pods, err := s.kube.CoreV1().Pods(runnerNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return final, err
	}
	for i := range pods.Items {
		final.Pods = append(final.Pods, leftPod(&pods.Items[i]))
	}
	accounts, err := s.kube.CoreV1().ServiceAccounts(runnerNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return final, err
	}
	for _, account := range accounts.Items {
		if account.Name != "default" {
			final.ServiceAccounts = append(final.ServiceAccounts, check.Left{Name: account.Name, UID: string(account.UID), Why: "made " + account.CreationTimestamp.String()})
		}
	}
	pools, err := s.listPools(ctx)
	if err != nil {
		return final, err
	}
	for _, pool := range pools {
		why := "deletion asked for " + pool.DeletionTimestamp.String()
		for _, c := range pool.Status.Conditions {
			why += "; " + c.Type + "=" + string(c.Status) + " " + c.Reason + ": " + c.Message
		}
		final.Pools = append(final.Pools, check.Left{Name: pool.Name, UID: string(pool.UID), Why: why})
	}
	return final, nil
}

func leftPod(pod *corev1.Pod) check.Left {
	why := "phase " + string(pod.Status.Phase) + ", on " + pod.Spec.NodeName
	if pod.DeletionTimestamp != nil {
		why += ", deletion asked for " + pod.DeletionTimestamp.String()
	}
	for _, c := range pod.Status.ContainerStatuses {
		state := "waits"
		switch {
		case c.State.Running != nil:
			state = "runs"
		case c.State.Terminated != nil:
			state = "ended with " + strconv.Itoa(int(c.State.Terminated.ExitCode))
		}
		why += ", " + c.Name + " " + state
		if c.Ready {
			why += " (ready)"
		}
	}
	for name, value := range pod.Labels {
		if strings.HasSuffix(name, "-owner") {
			why += ", works for " + value
		}
	}
	return check.Left{Name: pod.Name, UID: string(pod.UID), Why: why}
}
