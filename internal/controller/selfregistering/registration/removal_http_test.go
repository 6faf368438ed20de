package registration

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	remove5  = "DELETE /orgs/acme/actions/runners/5"
	listAcme = "GET /orgs/acme/actions/runners"
	listed5  = `{"total_count":1,"runners":[{"id":5,"name":"r-1","status":"online","busy":false}]}`
)

func TestRemove_RUN2_AsGitHubAnswersIt(t *testing.T) {
	for name, one := range map[string]struct {
		remove, list http.HandlerFunc
		subject      Subject
		want         lifecycle.Verdict
		calls        []string
		after        time.Duration // until NotBefore; zero: none
	}{
		"204":                       {remove: status(204, ``), subject: Subject{ID: 5, Name: "r-1"}, want: lifecycle.Granted, calls: []string{remove5}},
		"EXCL6 200, a proxy's page": {remove: status(200, `<html>Sign in</html>`), subject: Subject{ID: 5, Name: "r-1"}, want: lifecycle.Unknown, calls: []string{remove5}},
		"EXCL6 404, a page for the list": {remove: status(404, `{}`), list: status(200, `<html>Sign in</html>`), subject: Subject{ID: 5, Name: "r-1"},
			want: lifecycle.Unknown, calls: []string{remove5, listAcme}},
		"422 costs one call in all": {remove: status(422, `{"message":"Bad request - Runner \"r-1\" is still running a job"}`),
			subject: Subject{ID: 5, Name: "r-1"}, want: lifecycle.Busy, calls: []string{remove5}},
		"422, ended": {remove: status(422, `{}`), subject: Subject{ID: 5, Name: "r-1", Ended: true}, want: lifecycle.Granted, calls: []string{remove5}},
		"404, list readable": {remove: status(404, `{}`), list: status(200, noRunners), subject: Subject{ID: 5, Name: "r-1"},
			want: lifecycle.Granted, calls: []string{remove5, listAcme}},
		"404, scope gone": {remove: status(404, `{}`), list: status(404, `{}`), subject: Subject{ID: 5, Name: "r-1"},
			want: lifecycle.Unknown, calls: []string{remove5, listAcme}},
		"404, list empty body": {remove: status(404, `{}`), list: status(200, ``), subject: Subject{ID: 5, Name: "r-1"},
			want: lifecycle.Unknown, calls: []string{remove5, listAcme}},
		"403, listed": {remove: status(403, `{}`), list: status(200, listed5), subject: Subject{ID: 5, Name: "r-1"},
			want: lifecycle.Unknown, calls: []string{remove5, listAcme}},
		"403, listed, ended": {remove: status(403, `{}`), list: status(200, listed5), subject: Subject{ID: 5, Name: "r-1", Ended: true},
			want: lifecycle.Granted, calls: []string{remove5, listAcme}},
		"403, list forbidden": {remove: status(403, `{}`), list: status(403, `{}`), subject: Subject{ID: 5, Name: "r-1"},
			want: lifecycle.Unknown, calls: []string{remove5, listAcme}},
		"403 that is a limit": {remove: status(403, `{}`, "Retry-After", "45"), subject: Subject{ID: 5, Name: "r-1"},
			want: lifecycle.Unknown, calls: []string{remove5}, after: 45 * time.Second},
		"429": {remove: status(429, `{}`, "Retry-After", "30"), subject: Subject{ID: 5, Name: "r-1"},
			want: lifecycle.Unknown, calls: []string{remove5}, after: 30 * time.Second},
		"500": {remove: status(500, `{}`), subject: Subject{ID: 5, Name: "r-1"}, want: lifecycle.Unknown, calls: []string{remove5}},
		"cut": {remove: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, subject: Subject{ID: 5, Name: "r-1"},
			want: lifecycle.Unknown, calls: []string{remove5}},
		"no id, listed": {remove: status(204, ``), list: status(200, listed5), subject: Subject{Name: "r-1"},
			want: lifecycle.Granted, calls: []string{listAcme, remove5}},
		"no id, absent": {list: status(200, noRunners), subject: Subject{Name: "r-1", NeverStarted: true}, want: lifecycle.Granted,
			calls: []string{listAcme}},
		"no id, another's name begins with it": {list: status(200, `{"total_count":1,"runners":[{"id":5,"name":"r-10"}]}`),
			subject: Subject{Name: "r-1"}, want: lifecycle.Granted, calls: []string{listAcme}},
		"no id, scope gone": {list: status(404, `{}`), subject: Subject{Name: "r-1"}, want: lifecycle.Unknown, calls: []string{listAcme}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.on(remove5, one.remove)
			w.on(listAcme, one.list)
			got := w.registrar(t, "pat", acme).Remove(t.Context(), one.subject)
			require.Equal(t, one.want, got.Verdict, "%+v", got)
			require.Equal(t, one.calls, w.calls())
			if one.after != 0 {
				require.Equal(t, w.clock.read().Add(one.after), got.NotBefore)
			}
			require.NotContains(t, fmt.Sprintf("%+v", got), "hunter2")
		})
	}
}

func TestRemove_EXCL6_CredentialsThatAreRefusedSayNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.on(remove5, status(401, `{"message":"Bad credentials"}`))
	w.on(listAcme, status(200, noRunners))
	at := w.registrar(t, "pat", acme)
	require.Equal(t, lifecycle.Unknown, at.Remove(t.Context(), Subject{ID: 5, Name: "r-1"}).Verdict)
	require.Equal(t, []string{remove5}, w.calls(), "no control read: the refusal is not about the runner")
	got := at.Remove(t.Context(), Subject{ID: 5, Name: "r-1"})
	require.Equal(t, lifecycle.Unknown, got.Verdict)
	require.Equal(t, w.clock.read().Add(refusalHolds), got.NotBefore)
	require.Contains(t, got.Detail, "does not accept")
	require.Empty(t, w.calls())

	w.on("GET /orgs/acme/installation", status(200, `{"id":42}`))
	w.on("POST /app/installations/42/access_tokens", status(404, `{}`))
	require.Equal(t, lifecycle.Unknown, w.registrar(t, "", acme).Remove(t.Context(), Subject{ID: 5, Name: "r-1"}).Verdict)
}

// After a rename another repository may have the old name, which has none of its runners and a list that can be read.
func TestRemove_EXCL6_ARenamedRepositoryIsFollowedByItsID(t *testing.T) {
	w := newWorld(t, nil)
	app := Target{Repository: "acme/app"}
	w.on("GET /repos/acme/app", status(200, `{"id":77,"full_name":"acme/app"}`))
	at := w.registrar(t, "pat", app)
	kept := at.Target()
	require.Equal(t, Target{Repository: "acme/app", RepositoryID: 77}, kept)
	w.on("GET /repos/acme/app/actions/runners", status(200, noRunners)) // another's by now
	w.on("GET /repositories/77", status(200, `{"id":77,"full_name":"acme/moved"}`))
	w.on("DELETE /repos/acme/moved/actions/runners/5", status(422, `{}`))
	require.Equal(t, lifecycle.Busy, at.Remove(t.Context(), Subject{ID: 5, Name: "r-1"}).Verdict)

	later := newWorld(t, nil) // after a restart, with the target that was kept
	later.on("GET /repos/acme/app", status(200, `{"id":88,"full_name":"acme/app"}`))
	later.on("GET /repos/acme/app/actions/runners", status(200, noRunners))
	later.on("GET /repositories/77", status(200, `{"id":77,"full_name":"acme/moved"}`))
	later.on("DELETE /repos/acme/moved/actions/runners/5", status(422, `{}`))
	got := later.registrar(t, "pat", kept).Remove(t.Context(), Subject{ID: 5, Name: "r-1"})
	require.Equal(t, lifecycle.Busy, got.Verdict, "%+v", got)

	later.on("GET /repositories/77", status(404, `{}`)) // it is deleted
	got = later.registrar(t, "pat", kept).Remove(t.Context(), Subject{ID: 5, Name: "r-1"})
	require.Equal(t, lifecycle.Unknown, got.Verdict, "%+v", got)
	got = later.registrar(t, "pat", kept).Remove(t.Context(), Subject{Name: "r-1"})
	require.Equal(t, lifecycle.Unknown, got.Verdict, "%+v", got)
}

// When GitHub hangs for one set of credentials, only that account's slots are held, each no longer than its deadline.
func TestBulkhead_AHangingGitHubDelaysNobodyElse(t *testing.T) {
	const most = 3
	w := newWorld(t, func(o *HubOptions) { o.Calls = most })
	hanging, release := make(chan struct{}, most), make(chan struct{})
	w.on(remove5, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer ghp_hunter2" {
			hanging <- struct{}{}
			await.OrEnd(t, release)
		}
		rw.WriteHeader(http.StatusNoContent)
	})
	w.shelf.put("other", "token", "ghp_other")
	slow, quick := w.registrar(t, "pat", acme), w.registrar(t, "other", acme)
	answers := make(chan lifecycle.Answer, most)
	for range most {
		go func() { answers <- slow.Remove(t.Context(), Subject{ID: 5, Name: "r-1"}) }()
	}
	for range most {
		await.Receive(t, hanging, "a removal reaches GitHub")
	}
	got := slow.Remove(t.Context(), Subject{ID: 5, Name: "r-1"})
	require.Equal(t, lifecycle.Unknown, got.Verdict)
	require.Contains(t, got.Detail, "too many requests in flight")
	_, err := slow.JIT(t.Context(), JITRequest{Name: "r-2"})
	require.ErrorIs(t, err, ErrBusy)
	_, err = slow.Find(t.Context(), "r-2")
	require.ErrorIs(t, err, ErrBusy)
	require.Equal(t, lifecycle.Granted, quick.Remove(t.Context(), Subject{ID: 5, Name: "r-1"}).Verdict)
	close(release)
	for range most {
		require.Equal(t, lifecycle.Granted, await.Receive(t, answers, "the removal is answered").Verdict)
	}
	require.Equal(t, lifecycle.Granted, slow.Remove(t.Context(), Subject{ID: 5, Name: "r-1"}).Verdict)
}

func TestBulkhead_EveryCallHasADeadline(t *testing.T) {
	w := newWorld(t, func(o *HubOptions) { o.CallTimeout, o.GitHub.Timeout = 50*time.Millisecond, time.Hour })
	w.on(remove5, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	at := w.registrar(t, "pat", acme)
	answer := make(chan lifecycle.Answer, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { answer <- at.Remove(ctx, Subject{ID: 5, Name: "r-1"}) }()
	select {
	case got := <-answer:
		require.Equal(t, lifecycle.Unknown, got.Verdict)
		require.Contains(t, got.Detail, "deadline exceeded")
	case <-time.After(10 * time.Second):
		t.Fatal("the call goes on")
	}
}
