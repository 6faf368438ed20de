package dispatch

import (
	"errors"
	"fmt"
)

// ErrForeignRunner: the runner has a name of one of our pods, and is not the one that was registered for it. GitHub lets an organization give
// its own runners any name.
var ErrForeignRunner = errors.New("the runner has the name of a pod that is busy for another account")

// Registrant is what says for which account a pod's runner is registered. Each field is 0 or "" where nothing is known, as
// after a restore.
type Registrant struct {
	ClaimAccount      int64 // of the pod's row: a pod works for one account, once
	RegisteredPod     string
	RegisteredAccount int64 // of the row of that runner's name, which is written before GitHub is asked
	LabelAccount      int64 // of the pod's owner label, which the server writes and the account cannot
}

// Admit returns ErrForeignRunner when what is known says that the runner is another's (CLAIM-13). The rows count before the
// label. Where nothing is known the runner is admitted: a ledger that has lost rows must not give up a busy runner
// (CLAIM-17). So is another name of the same account, for the same reason; that account alone is charged.
func (r Registrant) Admit(a Adoption) error {
	switch account := a.Account.ID; {
	case r.ClaimAccount != 0 && r.ClaimAccount != account:
		return fmt.Errorf("%w: the claim is of account %d", ErrForeignRunner, r.ClaimAccount)
	case r.RegisteredPod != "" && (r.RegisteredPod != a.PodUID || r.RegisteredAccount != account):
		return fmt.Errorf("%w: the name was registered for account %d and pod %s", ErrForeignRunner, r.RegisteredAccount, r.RegisteredPod)
	case r.ClaimAccount == 0 && r.RegisteredPod == "" && r.LabelAccount != 0 && r.LabelAccount != account:
		return fmt.Errorf("%w: its label names account %d", ErrForeignRunner, r.LabelAccount)
	default:
		return nil
	}
}
