package realnode

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/soak/containers"
)

// killProcesses kills a pod's processes that have a word among their arguments, in whatever namespaces they are.
func killProcesses(pod *corev1.Pod, word string) (killed int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(groups, []byte("pod"+pod.UID)) {
			continue // it has ended, or is another pod's
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if err != nil || !slices.Contains(strings.Split(string(line), "\x00"), word) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return killed, err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			killed++
		}
	}
	return killed, nil
}

// judge requires a table without findings.
func (s *containerSoak) judge() {
	evidence := containers.Evidence{Jobs: s.outcomes(), Strikes: s.strikes}
	s.searchLogs()
	evidence.Claims = s.left(s.liveClaims)
	evidence.Pods = s.left(s.podsLeft)
	evidence.Secrets = s.left(s.secretsLeft)
	evidence.Containers = s.left(s.containersLeft)
	evidence.Registrations = s.left(s.registrationsLeft)
	for where := range s.exposed {
		evidence.Exposed = append(evidence.Exposed, where)
	}
	conclusions := map[string]int{}
	for _, job := range evidence.Jobs {
		conclusions[job.Conclusion]++
	}
	s.Logf("%d jobs, %d faults: %v", len(evidence.Jobs), len(evidence.Strikes), conclusions)
	for _, row := range containers.Examine(evidence) {
		s.Logf("%5d %s", len(row.Findings), row.Name)
		assert.Empty(s, row.Findings, "%s:\n%s", row.Name, strings.Join(row.Findings, "\n"))
	}
	if s.Failed() {
		s.tell()
		s.FailNow()
	}
}

func (s *containerSoak) outcomes() []containers.Outcome {
	ledger, err := s.github.Admin.Ledger(s.Context())
	require.NoError(s, err)
	var outcomes []containers.Outcome
	for _, job := range ledger.Jobs {
		number, ok := soakNumber(job.JobView)
		if !ok {
			continue
		}
		o := containers.Outcome{
			Number: number, Conclusion: job.Conclusion, Acquisitions: job.Acquisitions, Vanished: job.VanishedMidJob, Cancelled: s.stops[number], Images: s.images[number],
		}
		if job.StartedAt != nil {
			o.Started = *job.StartedAt
		}
		if job.CompletedAt != nil {
			o.Completed = *job.CompletedAt
		}
		if job.Acquisitions > 0 {
			o.Log, err = s.github.Admin.JobLog(s.Context(), job.ID)
			require.NoError(s, err)
			s.search("the log of "+job.Key, o.Log)
		}
		outcomes = append(outcomes, o)
	}
	require.Len(s, outcomes, len(s.schedule.Jobs))
	return outcomes
}

// searchLogs looks for the password in what the fleet's programs wrote, and in Events.
func (s *containerSoak) searchLogs() {
	pods, err := s.kube.CoreV1().Pods(systemNamespace).List(s.Context(), metav1.ListOptions{})
	require.NoError(s, err)
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, previous := range []bool{false, true} {
			text, err := s.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Previous: previous}).DoRaw(s.Context())
			if err == nil { // there is none of a container that was never restarted
				s.search("the log of "+pod.Name, string(text))
			}
		}
	}
	events, err := s.kube.CoreV1().Events("").List(s.Context(), metav1.ListOptions{})
	require.NoError(s, err)
	for i := range events.Items {
		s.search("Event "+events.Items[i].Name, &events.Items[i])
	}
}

// left waits until nothing is left, and returns what is.
func (s *containerSoak) left(list func() []string) []string {
	var now []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-time.After(interval) {
		if now = list(); len(now) == 0 {
			return nil
		}
	}
	return now
}

func (s *containerSoak) podsLeft() (left []string) {
	for _, pod := range s.runners() {
		if pod.Labels[runnerpod.LabelPool] == faulty {
			left = append(left, pod.Name+" is "+string(pod.Status.Phase))
		}
	}
	return left
}

// secretsLeft are those of runners that are gone.
func (s *containerSoak) secretsLeft() (left []string) {
	secrets, err := s.kube.CoreV1().Secrets(runnersNamespace).List(s.Context(), metav1.ListOptions{})
	require.NoError(s, err)
	for i := range secrets.Items {
		if strings.HasPrefix(secrets.Items[i].Name, faulty+"-") {
			left = append(left, secrets.Items[i].Name)
		}
	}
	return left
}

func (s *containerSoak) containersLeft() []string {
	var live []string
	for _, pod := range s.runners() {
		live = append(live, string(pod.UID))
	}
	all, err := s.node.Runtime().ContainersBut(s.Context(), runnersNamespace)
	require.NoError(s, err)
	require.NotEmpty(s, all, "of other pools")
	left, err := s.node.Runtime().ContainersBut(s.Context(), runnersNamespace, live...)
	require.NoError(s, err)
	return left
}

func (s *containerSoak) registrationsLeft() (left []string) {
	runners, err := s.github.Admin.Runners(s.Context())
	require.NoError(s, err)
	for _, runner := range runners {
		if slices.Contains(runner.Labels, faulty) {
			left = append(left, runner.Name)
		}
	}
	return left
}
