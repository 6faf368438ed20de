package podconformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	// rowLimit bounds one row. A row takes ten seconds at most; a busy machine with two cores starts a hundred pods at the same time.
	rowLimit = 2 * time.Minute
	// defaultAtOnce is how many rows run concurrently: most of them wait for time to pass.
	defaultAtOnce = 24
)

// Programs are those that the image needs on PATH.
var Programs = []string{"cat", "date", "env", "id", "ls", "mv", "printf", "readlink", "rm", "sh", "sleep", "stat", "test", "touch", "tr", "true"}

// Env is a node under test, and how to reach it.
type Env struct {
	// Kube and Config have an administrator's rights. Config is for commands in containers.
	Kube   kubernetes.Interface
	Config *rest.Config
	// Namespace creates a namespace whose pods the node may run, and has it deleted after the test.
	Namespace func(t testing.TB) string
	// Node is the name of the node that all pods are bound to.
	Node string
	// Image has the Programs, and a directory /tmp that every user may write to. Its user is root, and users 12345 and above are not in its
	// /etc/passwd. It does not have to be pulled.
	Image string
	// Differences are the rows in which this node differs from a kubelet.
	Differences []Difference
	// AtOnce is how many rows run concurrently. Default 24.
	AtOnce int
}

// row is one fact.
type row struct {
	name string // Area/Fact
	// fact is what a kubelet does, as one sentence for the documentation.
	fact string
	run  func(t *T)
}

// T is one row under way. It fails like a testing.T; the suite decides whether the failure was expected.
type T struct {
	*suite
	ctx context.Context
	row row

	mu       sync.Mutex
	problems []string
	created  []string // pods
}

// Errorf implements require.TestingT.
func (t *T) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// FailNow implements require.TestingT. It ends the row's goroutine.
func (t *T) FailNow() { runtime.Goexit() }

func (t *T) fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	t.FailNow()
}

func (t *T) problem() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.problems, "\n")
}

// suite is what all rows share.
type suite struct {
	env       Env
	namespace string
	history   *history
	node      *corev1.Node
	known     map[string]Difference
}

// Run runs all rows and reports each as a subtest.
func Run(t *testing.T, env Env) {
	t.Helper()
	all := rows()
	known, err := byRow(all, env.Differences)
	require.NoError(t, err)
	s := &suite{env: env, namespace: env.Namespace(t), known: known}
	s.prepare(t)
	for i, found := range s.runAll(t, all) {
		t.Run(all[i].name, func(t *testing.T) { judge(t, all[i], known, found) })
	}
}

func judge(t *testing.T, r row, known map[string]Difference, problem string) {
	t.Helper()
	text, ok := verdict(r, known, problem)
	switch {
	case !ok:
		t.Error(text)
	case text != "":
		t.Log(text)
	}
}

// verdict fails a row that differs without being listed, and one that is listed and does not differ.
func verdict(r row, known map[string]Difference, problem string) (text string, ok bool) {
	difference, listed := known[r.name]
	switch {
	case listed && problem == "":
		return fmt.Sprintf("the node does what a kubelet does (%s): remove the row from its differences", r.fact), false
	case listed:
		return fmt.Sprintf("known difference: a kubelet: %s; here: %s (%s)\n%s", r.fact, difference.Here, difference.Why, problem), true
	case problem != "":
		return fmt.Sprintf("a kubelet: %s\n%s", r.fact, problem), false
	}
	return "", true
}

// byRow checks the list: each entry names a row, and has its sentences.
func byRow(all []row, differences []Difference) (map[string]Difference, error) {
	names := map[string]bool{}
	for _, r := range all {
		if names[r.name] {
			return nil, fmt.Errorf("two rows are named %s", r.name)
		}
		names[r.name] = true
	}
	known := map[string]Difference{}
	var errs []error
	for _, d := range differences {
		_, twice := known[d.Row]
		switch {
		case !names[d.Row]:
			errs = append(errs, fmt.Errorf("the difference %q names no row", d.Row))
		case twice:
			errs = append(errs, fmt.Errorf("the difference %q is listed twice", d.Row))
		case d.Here == "" || d.Why == "":
			errs = append(errs, fmt.Errorf("the difference %q does not say what the node does and why", d.Row))
		}
		known[d.Row] = d
	}
	return known, errors.Join(errs...)
}

// prepare creates what pods refer to, and begins to watch the namespace.
func (s *suite) prepare(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	var err error
	s.node, err = s.env.Kube.CoreV1().Nodes().Get(ctx, s.env.Node, metav1.GetOptions{})
	require.NoError(t, err)
	for name, data := range configMaps {
		_, err := s.env.Kube.CoreV1().ConfigMaps(s.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err = s.env.Kube.CoreV1().Secrets(s.namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"password": "s3cret"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = s.env.Kube.CoreV1().Services(s.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.history, err = record(t, s.env.Kube, s.namespace)
	require.NoError(t, err)
}

// configMaps are those that rows refer to.
var configMaps = map[string]map[string]string{
	"config": {"key": "value", "other": "second"},
	"first":  {"A": "first", "B": "first"},
	"second": {"B": "second", "1st.key-x": "odd"},
}

// runAll returns the problem of each row, "" for none.
func (s *suite) runAll(t *testing.T, all []row) []string {
	t.Helper()
	atOnce := s.env.AtOnce
	if atOnce == 0 {
		atOnce = defaultAtOnce
	}
	places := make(chan struct{}, atOnce)
	problems := make([]string, len(all))
	var running sync.WaitGroup
	for i, r := range all {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }() // bounded: it holds the place of this goroutine
			problems[i] = s.runRow(t.Context(), r)
		})
	}
	running.Wait() // bounded: rowLimit ends each row
	return problems
}

// runRow runs one row in a goroutine of its own, because FailNow ends that.
func (s *suite) runRow(ctx context.Context, r row) string {
	ctx, cancel := context.WithTimeout(ctx, rowLimit)
	defer cancel()
	t := &T{suite: s, ctx: ctx, row: r}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.cleanUp()
		r.run(t)
	}()
	<-done // bounded: each wait of a row ends with its context
	return t.problem()
}
