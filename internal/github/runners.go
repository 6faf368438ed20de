package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"

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
	parts := []string{scope.Owner, scope.Repo}
	switch {
	case scope.Enterprise != "":
		parts = []string{scope.Enterprise}
		if scope.Owner != "" || scope.Repo != "" {
			parts = []string{""} // two places at once
		}
	case scope.Repo == "":
		parts = parts[:1] // an organization
	}
	for _, part := range parts {
		if !validName.MatchString(part) || part == "." || part == ".." {
			return fmt.Errorf("%s: %w: %q is not an owner, owner/repository or enterprises/slug", name, fleet.ErrRejected, scope.String())
		}
	}
	return nil
}

// actionsPath is where GitHub keeps what belongs to a scope's runners. The scope's names were checked.
func actionsPath(scope fleet.Scope) string {
	switch {
	case scope.Enterprise != "":
		return "enterprises/" + scope.Enterprise + "/actions/"
	case scope.Repo == "":
		return "orgs/" + scope.Owner + "/actions/"
	default:
		return "repos/" + scope.Owner + "/" + scope.Repo + "/actions/"
	}
}

func runnerPath(scope fleet.Scope, id int64) string {
	return actionsPath(scope) + "runners/" + strconv.FormatInt(id, 10)
}

// call is a request for a URL, with an optional body and a place for the response.
func call(method, path string, body, into any) request {
	return func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
		req, err := api.NewRequest(ctx, method, path, body)
		if err != nil {
			return nil, err
		}
		return api.Do(req, into)
	}
}

// Mint registers a just-in-time runner. ErrNoRunnerGroup: the scope has no such group. ErrNameTaken: a runner of that name exists, perhaps by an earlier mint whose
// answer was lost. ErrUncertain: one may exist now; find it by name.
func (c *Client) Mint(ctx context.Context, installationID int64, ask fleet.MintRequest) (fleet.JIT, error) {
	if err := checkScope(opMint, ask.Scope); err != nil {
		return fleet.JIT{}, err
	}
	group, err := c.mintGroup(ctx, installationID, ask)
	if err != nil {
		return fleet.JIT{}, err
	}
	body := &gh.GenerateJITConfigRequest{Name: ask.Name, RunnerGroupID: group, Labels: ask.Labels}
	if ask.WorkFolder != "" {
		body.WorkFolder = &ask.WorkFolder
	}
	var minted *gh.JITRunnerConfig
	do := call(http.MethodPost, actionsPath(ask.Scope)+"runners/generate-jitconfig", body, &minted)
	if err := c.asInstallation(atPlace(ctx, ask.Scope), installationID, opMint, classMint, mintMeanings, do); err != nil {
		if c.groupless(ctx, installationID, ask, group, err) {
			return fleet.JIT{}, fmt.Errorf("%s: %w: %w", opMint, fleet.ErrNoRunnerGroup, err)
		}
		return fleet.JIT{}, err
	}
	encoded := minted.GetEncodedJITConfig()
	if encoded == "" || minted.GetRunner().GetID() == 0 {
		return fleet.JIT{}, fmt.Errorf("%s: %w: the response has no configuration", opMint, fleet.ErrUncertain)
	}
	return fleet.JIT{
		RunnerID: minted.GetRunner().GetID(), Name: ask.Name, Encoded: fleet.NewSecret(encoded), // NET-3
	}, nil
}

// RemoveRunner removes a registration: nil when GitHub answered 204, ErrRunnerBusy when it runs a job. Any other success is ErrUncertain. ErrNotFound
// and ErrForbidden prove something only beside a successful ControlRead of the same scope (EXCL-6).
func (c *Client) RemoveRunner(ctx context.Context, installationID int64, scope fleet.Scope, runnerID int64) error {
	return c.whereItIs(ctx, installationID, scope, notThere, func(ctx context.Context, scope fleet.Scope) error {
		return c.removeIn(ctx, installationID, scope, runnerID)
	})
}

func (c *Client) removeIn(ctx context.Context, installationID int64, scope fleet.Scope, runnerID int64) error {
	if err := checkScope(opRemove, scope); err != nil {
		return err
	}
	remove := call(http.MethodDelete, runnerPath(scope, runnerID), nil, nil)
	do := func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
		resp, err := remove(ctx, api)
		if err == nil && resp.StatusCode != http.StatusNoContent { // EXCL-6: a proxy's page is no word of GitHub's
			err = fmt.Errorf("the response has status %d instead of %d", resp.StatusCode, http.StatusNoContent)
		}
		return resp, err
	}
	return c.asInstallation(atPlace(ctx, scope), installationID, opRemove, classRemove, removeMeanings, do)
}

// Runner reads one registration.
func (c *Client) Runner(
	ctx context.Context, installationID int64, scope fleet.Scope, runnerID int64,
) (fleet.Registration, error) {
	if err := checkScope(opRunner, scope); err != nil {
		return fleet.Registration{}, err
	}
	var found *gh.Runner
	do := call(http.MethodGet, runnerPath(scope, runnerID), nil, &found)
	if err := c.asInstallation(atPlace(ctx, scope), installationID, opRunner, classRead, nil, do); err != nil {
		return fleet.Registration{}, err
	}
	if found.GetID() != runnerID {
		return fleet.Registration{}, fmt.Errorf("%s: %w: the response is about another runner", opRunner, fleet.ErrUncertain)
	}
	return registration(found), nil
}

// FindRunner looks a registration up by its whole name. ErrAbsent: there is none, and the list was readable just now. A 404
// of the list itself proves nothing, and is ErrUncertain (EXCL-6).
func (c *Client) FindRunner(
	ctx context.Context, installationID int64, scope fleet.Scope, name string,
) (found fleet.Registration, err error) {
	err = c.whereItIs(ctx, installationID, scope, notThere, func(ctx context.Context, scope fleet.Scope) (err error) {
		found, err = c.findIn(ctx, installationID, scope, name)
		return err
	})
	if errors.Is(err, fleet.ErrNotFound) && !errors.Is(err, ErrAbsent) { // EXCL-6
		return fleet.Registration{}, fmt.Errorf("%s: %w: the list is not found", opFind, fleet.ErrUncertain)
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
		for _, one := range page { // a server that ignores the filter lists all runners
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

// ListRunners yields every registration of the scope until yield returns false. Runners that come and go in
// between shift the pages, so a runner may be missed or seen twice: absence from the list proves nothing,
// FindRunner does.
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
	return c.whereItIs(ctx, installationID, scope, witness, func(ctx context.Context, scope fleet.Scope) error {
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
	list := call(http.MethodGet, actionsPath(scope)+"runners?"+runnersQuery(options), nil, &runners)
	do := func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
		resp, err := list(ctx, api)
		if resp != nil {
			at.next, at.last = resp.NextPage, resp.LastPage
		}
		return resp, err
	}
	of := classRead
	if name == opList || name == opRoster {
		of = classSweep
	}
	if err := c.asInstallation(atPlace(ctx, scope), installationID, name, of, nil, do); err != nil {
		return nil, position{}, err
	}
	if runners == nil || runners.Runners == nil { // an empty body must not read as "no runners"
		return nil, position{}, fmt.Errorf("%s: %w: the response has no list", name, fleet.ErrUncertain)
	}
	at.total = runners.TotalCount
	return runners.Runners, at, nil
}

func runnersQuery(options *gh.ListRunnersOptions) string {
	query := pageQuery(options.ListOptions)
	if options.Name != nil {
		query.Set("name", *options.Name)
	}
	return query.Encode()
}

func pageQuery(options gh.ListOptions) url.Values {
	query := url.Values{"per_page": {strconv.Itoa(options.PerPage)}}
	if options.Page != 0 {
		query.Set("page", strconv.Itoa(options.Page))
	}
	return query
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
	in, ok := c.peek(installationID)
	if !ok {
		return fleet.RateState{}, false
	}
	return in.rates.get(resource)
}

// MintRate is the state of whichever bucket the installation's mints count against.
func (c *Client) MintRate(installationID int64) (fleet.RateState, bool) {
	in, ok := c.peek(installationID)
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
