package admin

import (
	"context"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// withDemand counts the accounts' jobs as pools and lists of jobs do. While that cannot be read, the ledger's own counts stay.
func (a *API) withDemand(ctx context.Context, accounts []adminapi.Account) {
	lanes, err := a.opt.Fleet.Lanes(ctx)
	if err != nil {
		a.opt.Log.DebugContext(ctx, "reading which jobs may start", "error", err)
		return
	}
	unserved, err := a.opt.Fleet.Unserved(ctx)
	if err != nil {
		a.opt.Log.DebugContext(ctx, "reading which jobs no pool serves", "error", err)
	}
	at := make(map[int64]*adminapi.Account, len(accounts))
	for i := range accounts {
		account := &accounts[i]
		account.Queued, account.Blocked, account.Unserved = 0, 0, unserved.Accounts[account.ID]
		at[account.ID] = account
	}
	for ref, lane := range lanes {
		if account := at[ref.AccountID]; account != nil {
			count(account, lane)
		}
	}
}

// count adds what is queued in a lane. Only jobs that wait for the account's limit count for the limit's platform.
func count(account *adminapi.Account, lane dispatch.LaneDemand) {
	account.Queued += lane.Queued
	for reason, jobs := range lane.Blocked {
		account.Blocked += jobs
		if reason != runnerapi.BlockedLimit {
			continue
		}
		for i := range account.Budgets {
			if account.Budgets[i].Platform == string(lane.Platform) {
				account.Budgets[i].Blocked += jobs
			}
		}
	}
}
