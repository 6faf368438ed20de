package lifecycle

import (
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
