package github

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Names of the operations, in errors and metrics.
const (
	opMint       = "minting a JIT configuration"
	opRemove     = "removing a runner"
	opRunner     = "reading a runner"
	opFind       = "finding a runner by name"
	opList       = "listing runners"
	opControl    = "reading the scope"
	pageSize     = 100
	statusOnline = "online"
)

// ErrAbsent: the scope's list was read just now and holds no runner of that name. It is a fleet.ErrNotFound too, but
// needs no control read beside it: it is one.
var ErrAbsent = fmt.Errorf("no runner has that name: %w", fleet.ErrNotFound)

// validName is what GitHub allows in logins and repository names; anything else would change the path of a request.
var validName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

func checkScope(name string, scope fleet.Scope) error {
	for i, part := range []string{scope.Owner, scope.Repo} {
		if i == 1 && part == "" {
			continue // an organization
		}
		if !validName.MatchString(part) || part == "." || part == ".." {
			return fmt.Errorf("%s: %w: %q is not an owner or owner/repository", name, fleet.ErrRejected, scope.String())
		}
	}
	return nil
}

// Mint registers a just-in-time runner. ErrNameTaken: a runner of that name exists, perhaps by an earlier mint whose
// answer was lost. ErrUncertain: one may exist now; find it by name.
func (c *Client) Mint(ctx context.Context, installationID int64, ask fleet.MintRequest) (fleet.JIT, error) {
	if err := checkScope(opMint, ask.Scope); err != nil {
		return fleet.JIT{}, err
	}
	body := &gh.GenerateJITConfigRequest{Name: ask.Name, RunnerGroupID: ask.RunnerGroupID, Labels: ask.Labels}
	if body.RunnerGroupID == 0 {
		body.RunnerGroupID = 1
	}
	if ask.WorkFolder != "" {
		body.WorkFolder = &ask.WorkFolder
	}
	var minted *gh.JITRunnerConfig
	do := func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
		if ask.Scope.Repo == "" {
			minted, resp, err = api.Actions.GenerateOrgJITConfig(ctx, ask.Scope.Owner, body)
		} else {
			minted, resp, err = api.Actions.GenerateRepoJITConfig(ctx, ask.Scope.Owner, ask.Scope.Repo, body)
		}
		return resp, err
	}
	if err := c.asInstallation(ctx, installationID, opMint, classMint, mintMeanings, do); err != nil {
		return fleet.JIT{}, err
	}
	encoded := minted.GetEncodedJITConfig()
	if encoded == "" || minted.GetRunner().GetID() == 0 {
		return fleet.JIT{}, fmt.Errorf("%s: %w: the answer holds no configuration", opMint, fleet.ErrUncertain)
	}
	return fleet.JIT{
		RunnerID: minted.GetRunner().GetID(), Name: ask.Name, Encoded: fleet.NewSecret(encoded), // NET-3
	}, nil
}

// RemoveRunner removes a registration: nil when GitHub answered 204, ErrRunnerBusy when it runs a job. ErrNotFound
// and ErrForbidden prove something only beside a successful ControlRead of the same scope (EXCL-6).
func (c *Client) RemoveRunner(ctx context.Context, installationID int64, scope fleet.Scope, runnerID int64) error {
	return c.whereItIs(ctx, installationID, scope, notThere, func(scope fleet.Scope) error {
		return c.removeIn(ctx, installationID, scope, runnerID)
	})
}

func (c *Client) removeIn(ctx context.Context, installationID int64, scope fleet.Scope, runnerID int64) error {
	if err := checkScope(opRemove, scope); err != nil {
		return err
	}
	do := func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
		if scope.Repo == "" {
			return api.Actions.RemoveOrganizationRunner(ctx, scope.Owner, runnerID)
		}
		return api.Actions.RemoveRunner(ctx, scope.Owner, scope.Repo, runnerID)
	}
	return c.asInstallation(ctx, installationID, opRemove, classRemove, removeMeanings, do)
}

// Runner reads one registration.
func (c *Client) Runner(
	ctx context.Context, installationID int64, scope fleet.Scope, runnerID int64,
) (fleet.Registration, error) {
	if err := checkScope(opRunner, scope); err != nil {
		return fleet.Registration{}, err
	}
	var found *gh.Runner
	do := func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
		if scope.Repo == "" {
			found, resp, err = api.Actions.GetOrganizationRunner(ctx, scope.Owner, runnerID)
		} else {
			found, resp, err = api.Actions.GetRunner(ctx, scope.Owner, scope.Repo, runnerID)
		}
		return resp, err
	}
	if err := c.asInstallation(ctx, installationID, opRunner, classRead, nil, do); err != nil {
		return fleet.Registration{}, err
	}
	if found.GetID() != runnerID {
		return fleet.Registration{}, fmt.Errorf("%s: %w: the answer is about another runner", opRunner, fleet.ErrUncertain)
	}
	return registration(found), nil
}

// FindRunner looks a registration up by its whole name. ErrAbsent: there is none, and the list was readable just now. A 404
// of the list itself proves nothing, and is ErrUncertain (EXCL-6).
func (c *Client) FindRunner(
	ctx context.Context, installationID int64, scope fleet.Scope, name string,
) (found fleet.Registration, err error) {
	err = c.whereItIs(ctx, installationID, scope, notThere, func(scope fleet.Scope) (err error) {
		found, err = c.findIn(ctx, installationID, scope, name)
		return err
	})
	if errors.Is(err, fleet.ErrNotFound) && !errors.Is(err, ErrAbsent) { // EXCL-6
		return fleet.Registration{}, fmt.Errorf("%s: %w: the list itself is not found", opFind, fleet.ErrUncertain)
	}
	return found, err
}

func (c *Client) findIn(ctx context.Context, installationID int64, scope fleet.Scope, name string) (fleet.Registration, error) {
	options := &gh.ListRunnersOptions{Name: &name, ListOptions: gh.ListOptions{PerPage: pageSize}}
	for {
		page, at, err := c.runnerPage(ctx, installationID, opFind, scope, options)
		if err != nil {
			return fleet.Registration{}, err
		}
		for _, one := range page { // a server that ignores the filter lists everybody
			if one.GetName() == name {
				return registration(one), nil
			}
		}
		if at.next <= options.Page {
			return fleet.Registration{}, fmt.Errorf("%s: %w", opFind, ErrAbsent)
		}
		options.Page = at.next
	}
}

// ListRunners yields every registration of the scope until yield returns false. Runners that come and go meanwhile
// shift the pages, so a runner may be missed or seen twice: absence from the list proves nothing, FindRunner does.
func (c *Client) ListRunners(
	ctx context.Context, installationID int64, scope fleet.Scope, yield func(fleet.Registration) bool,
) error {
	options := &gh.ListRunnersOptions{ListOptions: gh.ListOptions{PerPage: pageSize}}
	for {
		page, at, err := c.runnerPage(ctx, installationID, opList, scope, options)
		if err != nil {
			return err
		}
		for _, one := range page {
			if !yield(registration(one)) {
				return nil
			}
		}
		if at.next <= options.Page {
			return nil
		}
		options.Page = at.next
	}
}

// ControlRead proves that the scope is readable just now, with the permission that removing runners needs: the
// witness beside which a 404 or 403 means something (EXCL-6).
func (c *Client) ControlRead(ctx context.Context, installationID int64, scope fleet.Scope) error {
	options := &gh.ListRunnersOptions{ListOptions: gh.ListOptions{PerPage: 1}}
	return c.whereItIs(ctx, installationID, scope, witness, func(scope fleet.Scope) error {
		_, _, err := c.runnerPage(ctx, installationID, opControl, scope, options)
		return err
	})
}

func (c *Client) runnerPage(
	ctx context.Context, installationID int64, name string, scope fleet.Scope, options *gh.ListRunnersOptions,
) (page []*gh.Runner, at position, err error) {
	if err := checkScope(name, scope); err != nil {
		return nil, position{}, err
	}
	var runners *gh.Runners
	do := func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
		if scope.Repo == "" {
			runners, resp, err = api.Actions.ListOrganizationRunners(ctx, scope.Owner, options)
		} else {
			runners, resp, err = api.Actions.ListRunners(ctx, scope.Owner, scope.Repo, options)
		}
		if resp != nil {
			at.next, at.last = resp.NextPage, resp.LastPage
		}
		return resp, err
	}
	of := classRead
	if name == opList || name == opRoster {
		of = classSweep
	}
	if err := c.asInstallation(ctx, installationID, name, of, nil, do); err != nil {
		return nil, position{}, err
	}
	if runners == nil || runners.Runners == nil { // an empty body must not read as "no runners"
		return nil, position{}, fmt.Errorf("%s: %w: the answer holds no list", name, fleet.ErrUncertain)
	}
	at.total = runners.TotalCount
	return runners.Runners, at, nil
}

// position is where a page stands in its list: the numbers of the next page and of the last one, 0 where there is none,
// and how many entries the list has.
type position struct{ next, last, total int }

func registration(from *gh.Runner) fleet.Registration {
	return fleet.Registration{
		ID: from.GetID(), Name: from.GetName(), Online: from.GetStatus() == statusOnline, Busy: from.GetBusy(),
	}
}

// RateState is what GitHub last said of one bucket of an installation; false when it has not yet.
func (c *Client) RateState(installationID int64, resource string) (fleet.RateState, bool) {
	in, ok := c.cache.peek(installationID)
	if !ok {
		return fleet.RateState{}, false
	}
	return in.rates.get(resource)
}

// MintRate is the state of whichever bucket the installation's mints count against.
func (c *Client) MintRate(installationID int64) (fleet.RateState, bool) {
	in, ok := c.cache.peek(installationID)
	if !ok {
		return fleet.RateState{}, false
	}
	state, known := in.rates.of(classMint)
	now := c.options.Now()
	// CLAIM-14: the less of what GitHub says and what our own pace leaves.
	if paced, ok := in.pace.mints(now); ok && (!known || !state.Reset.After(now) || paced.Remaining < state.Remaining) {
		return paced, true
	}
	return state, known
}
