package lifecycle

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMayDelete_EXCL2_EXCL4_NeedsAGrantAndNoSignOfWork(t *testing.T) {
	const uid = "uid"
	for _, c := range []struct {
		name     string
		observed Observed
		grant    Grant
		err      error
	}{
		{"ended, without a grant", Observed{UID: uid, Ended: true, Signs: Signs{PollerEnded: true}}, Grant{}, nil},
		{"granted", Observed{UID: uid}, Grant{UID: uid}, nil},
		{"EXCL-2 no grant", Observed{UID: uid}, Grant{}, ErrNoGrant},
		{"EXCL-2 a grant for another", Observed{UID: uid}, Grant{UID: "other"}, ErrNoGrant},
		{"EXCL-2 a proof without a grant", Observed{UID: uid}, Grant{Proof: "its registration is gone"}, ErrNoGrant},
		{"EXCL-2 neither has a UID", Observed{}, Grant{}, ErrNoGrant},
		{"EXCL-4 an owner", Observed{UID: uid, Signs: Signs{Owner: "octo"}}, Grant{UID: uid}, ErrVetoed},
		{"EXCL-4 a poller that has ended", Observed{UID: uid, Signs: Signs{PollerEnded: true}}, Grant{UID: uid}, ErrVetoed},
		{"EXCL-4 a runner that is no longer ready", Observed{UID: uid, Signs: Signs{NotReady: true}}, Grant{UID: uid}, ErrVetoed},
		{"a proof lifts the veto", Observed{UID: uid, Signs: Signs{NotReady: true}}, Grant{UID: uid, Proof: "its registration is gone"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.ErrorIs(t, MayDelete(c.observed, c.grant), c.err)
		})
	}
}

type fenceSays Answer

func (f fenceSays) Ask(_ context.Context, runners []RunnerRef) []Answer {
	answers := make([]Answer, len(runners))
	for i := range answers {
		answers[i] = Answer(f)
	}
	return answers
}

func TestRemove_EXCL2_EXCL3_EXCL4_AsksAgainRightBefore(t *testing.T) {
	const uid = "uid"
	idle, works := Observed{UID: uid}, Observed{UID: uid, Signs: Signs{NotReady: true}}
	refused := errors.New("it has changed")
	for _, c := range []struct {
		name     string
		observed Observed
		grant    Grant
		lost     bool
		says     Answer
		answers  error
		deleted  bool
		err      error
	}{
		{name: "granted twice", observed: idle, grant: Grant{UID: uid}, says: Answer{Verdict: Granted}, deleted: true},
		{name: "ended: nobody is asked", observed: Observed{UID: uid, Ended: true}, deleted: true},
		{name: "EXCL-2 never granted before", observed: idle, says: Answer{Verdict: Granted}, err: ErrNoGrant},
		{name: "EXCL-2 busy meanwhile", observed: idle, grant: Grant{UID: uid}, says: Answer{Verdict: Busy}, err: ErrNotNow},
		{name: "EXCL-3 unknown", observed: idle, grant: Grant{UID: uid}, err: ErrNotNow},
		{name: "EXCL-4 no proof", observed: works, grant: Grant{UID: uid}, says: Answer{Verdict: Granted, Proof: "p"}, err: ErrVetoed},
		{name: "EXCL-4 no proof any more", observed: works, grant: Grant{uid, "p"}, says: Answer{Verdict: Granted}, err: ErrVetoed},
		{name: "proven", observed: works, grant: Grant{uid, "p"}, says: Answer{Verdict: Granted, Proof: "p"}, deleted: true},
		{name: "lost, and proven since", observed: works, grant: Grant{UID: uid}, lost: true, says: Answer{Verdict: Granted, Proof: "p"}, deleted: true},
		{name: "EXCL-4 lost, and not proven", observed: works, grant: Grant{UID: uid}, lost: true, says: Answer{Verdict: Granted}, err: ErrVetoed},
		{name: "EXCL-2 lost, and never granted", observed: works, lost: true, says: Answer{Verdict: Granted, Proof: "p"}, err: ErrNoGrant},
		{name: "it has changed", observed: idle, grant: Grant{UID: uid}, says: Answer{Verdict: Granted}, answers: refused, deleted: true, err: refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			deleted := false
			_, err := Remove(context.Background(), fenceSays(c.says), RunnerRef{UID: uid, Lost: c.lost}, c.observed, c.grant, func(context.Context) error {
				deleted = true
				return c.answers
			})
			require.Equal(t, c.deleted, deleted)
			require.ErrorIs(t, err, c.err)
		})
	}
}
