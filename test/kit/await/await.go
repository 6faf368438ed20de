package await

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Limit is how long a test waits for something that takes milliseconds: enough for a busy machine with two cores (TEN-9).
const Limit = time.Minute

// HTTP is a client for the requests of tests. Each ends after Limit, with its body.
var HTTP = &http.Client{Timeout: Limit}

// Receive returns the next value of ch, or the zero value if it is closed. It fails the test after Limit. Call it from the
// goroutine of the test.
func Receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return ReceiveWithin(t, Limit, ch, what)
}

// ReceiveWithin is Receive with another limit.
func ReceiveWithin[T any](t testing.TB, limit time.Duration, ch <-chan T, what string) T {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case value := <-ch:
		return value
	case <-timer.C:
	}
	fail(t, limit, what)
	var none T
	return none
}

// Result returns the next error of ch, or an error after Limit. It is for functions that must not end their goroutine, such as
// those of sync.OnceFunc, which panic then.
func Result(ch <-chan error, what string) error {
	timer := time.NewTimer(Limit)
	defer timer.Stop()
	select {
	case err := <-ch:
		return err
	case <-timer.C:
		return fmt.Errorf("not within %s: %s\n\n%s", Limit, what, goroutines())
	}
}

// Return waits until wait returns, such as the Wait of a sync.WaitGroup or an exec.Cmd. It fails the test after Limit. wait runs
// in a goroutine of its own, so it must not fail the test.
func Return(t testing.TB, wait func(), what string) {
	t.Helper()
	ReturnWithin(t, Limit, wait, what)
}

// ReturnWithin is Return with another limit.
func ReturnWithin(t testing.TB, limit time.Duration, wait func(), what string) {
	t.Helper()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		wait()
	}()
	ReceiveWithin(t, limit, returned, what)
}

// Call returns what call returns, such as the Wait of an exec.Cmd. It fails the test after Limit. call runs in a goroutine of its
// own, so it must not fail the test.
func Call[T any](t testing.TB, call func() T, what string) T {
	t.Helper()
	returned := make(chan T, 1)
	go func() { returned <- call() }()
	return Receive(t, returned, what)
}

// Context is for calls and commands that block until something happens. It ends after Limit, and with the test. In a cleanup, for
// which the test has ended, it ends after Limit alone.
func Context(t testing.TB) context.Context {
	t.Helper()
	return ContextWithin(t, Limit)
}

// ContextWithin is Context with another limit.
func ContextWithin(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	of := t.Context()
	if of.Err() != nil {
		of = context.WithoutCancel(of)
	}
	ctx, cancel := context.WithTimeout(of, limit)
	t.Cleanup(cancel)
	return ctx
}

// OrEnd waits for ch or for the end of the test, and fails nothing. It is for doubles that block a call of the product until the
// test lets it continue: a test that has failed waits for that call in its cleanup.
func OrEnd[T any](t testing.TB, ch <-chan T) {
	select {
	case <-ch:
	case <-t.Context().Done():
	}
}

func fail(t testing.TB, limit time.Duration, what string) {
	t.Helper()
	t.Fatalf("not within %s: %s\n\n%s", limit, what, goroutines())
}

// module is in the stack of each goroutine that runs code of ours.
const module = "github.com/bullpen-ci/bullpen/"

// goroutines returns the stacks in which this module occurs. It leaves out the rest, such as those of clients of Kubernetes.
func goroutines() string {
	all := make([]byte, 8<<20)
	all = all[:runtime.Stack(all, true)]
	var ours []string
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		if strings.Contains(stack, module) {
			ours = append(ours, stack)
		}
	}
	return strings.Join(ours, "\n\n")
}
