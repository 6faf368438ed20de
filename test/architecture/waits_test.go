package architecture

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TEN-9: each wait of a test has a bound of its own, so that a guard that is removed fails one test in seconds. unboundedWaits says
// which waits it sees. Those of test/kit are waits of the tests that call it. The programs below test/, such as the soak's, are not
// read: each runs under a deadline of its own.
func TestWaits_TEN9_NoWaitWithoutABound(t *testing.T) {
	check := func(path string) error {
		found, err := unboundedWaits(path, nil)
		for _, at := range found {
			t.Errorf("%s: wait with test/kit/await (Receive, Return, Context), or say on the line why the wait ends: %s…", at, bounded)
		}
		return err
	}
	eachTestFile(t, check)
	eachFile(t, filepath.Join("..", "kit"), 50, func(path string) bool {
		return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
	}, check)
}

// TEN-9: a request has a bound if its client has a timeout.
func TestWaits_TEN9_NoRequestWithoutABound(t *testing.T) {
	eachTestFile(t, func(path string) error {
		found, err := patientClients(path, nil)
		for _, at := range found {
			t.Errorf("%s: use await.HTTP of test/kit/await, or give the client a Timeout", at)
		}
		return err
	})
}

func eachTestFile(t *testing.T, check func(path string) error) {
	t.Helper()
	eachFile(t, filepath.Join("..", ".."), 300, func(path string) bool { return strings.HasSuffix(path, "_test.go") }, check)
}

func eachFile(t *testing.T, root string, least int, chosen func(path string) bool, check func(path string) error) {
	t.Helper()
	files := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != root || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !chosen(path) {
			return nil
		}
		files++
		return check(path)
	}))
	require.Greater(t, files, least, "a fence that sees nothing guards nothing")
}

func TestWaits_TheFenceSeesReceives(t *testing.T) {
	requireWaits(t, []int{3, 4, 6, 12}, `package x
func wait(ch chan int, ctx context.Context) {
	<-ch
	use((<-ch), "")
	go func() { <-ctx.Done(); <-r.Context().Done() }()
	<-server.Done()
	<-time.After(second)
	<-ticker.C
	<-ch // bounded: it has a value
	select {
	case <-time.After(second):
		<-ch
	case use(<-ch) <- 1:
	}
}`)
}

func TestWaits_TheFenceSeesSelects(t *testing.T) {
	requireWaits(t, []int{3, 7}, `package x
func wait(ch chan int, ctx context.Context) {
	select {
	case <-ch:
	case <-other.Done():
	}
	select {
	}
	select {
	case v := <-ch:
	case <-ctx.Done():
	}
	select {
	case ch <- 1:
	default:
	}
	select { // bounded: one of them is closed
	case <-ch:
	case <-other:
	}
	deadline := time.After(second)
	select {
	case <-ch:
	case <-deadline:
	}
	select {
	case <-ch:
	case <-p.ctx.Done():
	}
}`)
}

func TestWaits_TheFenceSeesRanges(t *testing.T) {
	requireWaits(t, []int{5, 9, 11, 13}, `package x
type source struct { lines chan string }
func wait(ch <-chan int, s source, all []string) {
	made := make(chan int)
	for range made {
	}
	for range all {
	}
	for v := range ch {
	}
	for line := range s.lines {
	}
	for event := range watching.ResultChan() {
	}
	for range ch { // bounded: it is closed above
	}
	go func() {
		for range ch {
		}
	}()
}`)
}

func TestWaits_TheFenceSeesWaits(t *testing.T) {
	requireWaits(t, []int{3, 4, 5, 7, 9}, `package x
func wait(t *testing.T) {
	wg.Wait()
	require.NoError(t, command.Wait())
	t.Cleanup(func() { command.Process.Signal(syscall.SIGINT); command.Wait() })
	t.Cleanup(func() { command.Process.Kill(); command.Wait() })
	defer wg.Wait()
	command.Process.Signal(syscall.SIGKILL); command.Wait()
	other.Wait()
	await.Return(t, wg.Wait, "all end")
	await.Return(t, func() { wg.Wait() }, "all end")
	go func() { ended <- command.Wait() }()
	other.Go(func() { wg.Wait() })
	synctest.Wait()
	limiter.Wait(ctx)
	synctest.Test(t, func(t *testing.T) { wg.Wait() })
	wg.Wait() // bounded: by their contexts
}`)
}

func TestWaits_TheFenceSeesCommands(t *testing.T) {
	requireWaits(t, []int{3, 5, 7, 9}, `package x
func wait(t *testing.T, ctx context.Context) {
	exec.Command("true").Run()
	command := exec.Command("true")
	command.CombinedOutput()
	other := exec.CommandContext(t.Context(), "true")
	other.Output()
	third := exec.CommandContext(await.Context(t), "true")
	exec.CommandContext(context.Background(), "true").Run()
	third.Run()
	exec.CommandContext(ctx, "true").Output()
	exec.Command("true").Run() //nolint:gosec // bounded: it only exits
	command.Start()
	m.Run()
}`)
}

func requireWaits(t *testing.T, lines []int, source string) {
	t.Helper()
	found, err := unboundedWaits("x_test.go", source)
	require.NoError(t, err)
	want := make([]string, 0, len(lines))
	for _, line := range lines {
		want = append(want, place("x_test.go", line))
	}
	require.Equal(t, want, found)
}

func TestWaits_TheFenceSeesClients(t *testing.T) {
	found, err := patientClients("x_test.go", `package x
func ask() {
	http.Get(url)
	http.DefaultClient.Do(request)
	client := &http.Client{Jar: jar}
	other := http.Client{Jar: jar, Timeout: time.Second}
	await.HTTP.Get(url)
	http.NewRequest("GET", url, nil)
}`)
	require.NoError(t, err)
	require.Equal(t, []string{"x_test.go:3", "x_test.go:4", "x_test.go:5"}, found)
}
