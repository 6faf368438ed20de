package registration

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// listTakes is how many times longer a list may take than another call: it has a page for each hundred runners.
const listTakes = 4

// place is one target with one set of credentials: a Registrar.
type place struct {
	account      *account
	installation int64
	scope        fleet.Scope
	target       Target
}

var _ Registrar = (*place)(nil)

// found reports whether nothing has to be looked up.
func (p *place) found() bool {
	switch {
	case p.account.hasToken():
		p.installation = github.OwnToken
	case p.account.identity.installation != 0:
		p.installation = p.account.identity.installation
	default:
		return false
	}
	return p.scope.Repo == "" || p.scope.RepositoryID != 0
}

// find looks up the App's installation and the repository's id, where they are not known.
func (p *place) find(ctx context.Context) error {
	if p.installation == 0 && !p.account.hasToken() {
		if p.scope.Enterprise != "" {
			return fmt.Errorf("%w: GitHub Apps register no runners of an enterprise: use a Secret with a token", ErrTarget)
		}
		err := p.heed(0, func() (err error) {
			p.installation, err = p.account.client.InstallationFor(ctx, p.scope)
			return err
		})
		if errors.Is(err, fleet.ErrNotFound) {
			return fmt.Errorf("%w: the App is not installed for %s (%s): install it there, or use other credentials", ErrTarget,
				p.scope, p.account.name)
		}
		if err != nil {
			return err
		}
	}
	if p.scope.Repo == "" || p.scope.RepositoryID != 0 {
		return nil
	}
	var repository fleet.Repository
	err := p.heed(p.installation, func() (err error) {
		repository, err = p.account.client.Repository(ctx, p.installation, p.scope.String())
		return err
	})
	if err != nil {
		return err
	}
	p.target.RepositoryID = repository.ID
	p.scope.RepositoryID = repository.ID
	if owner, name, ok := strings.Cut(repository.Name, "/"); ok { // it may have another name by now
		p.scope.Owner, p.scope.Repo = owner, name
	}
	return nil
}

// Target implements Registrar.
func (p *place) Target() Target { return p.target }

// call makes a call within the bulkhead, and gives its errors their meaning here.
func (p *place) call(ctx context.Context, times int, call func(context.Context) error) error {
	return p.explain(p.raw(ctx, times, call))
}

// read makes a call that registers nothing, so that only a refusal of the credentials has a meaning here.
func (p *place) read(ctx context.Context, call func(context.Context) error) error {
	err := p.raw(ctx, 1, call)
	if errors.Is(err, github.ErrUnauthorized) {
		return p.explain(err)
	}
	return err
}

// raw makes a call within the bulkhead.
func (p *place) raw(ctx context.Context, times int, call func(context.Context) error) error {
	return p.account.do(ctx, times, func(ctx context.Context) error {
		return p.heed(p.installation, func() error { return call(ctx) })
	})
}

// heed makes a call unless these credentials were refused a moment ago, and takes note if they are now. Installation 0 is the
// App itself, or a token.
func (p *place) heed(installation int64, call func() error) error {
	if last, ok := p.account.refuses(installation); ok {
		return last.err
	}
	err := call()
	p.account.noteResponse(installation, err)
	if errors.Is(err, github.ErrUnauthorized) && p.account.identity.installation == 0 && !p.account.hasToken() {
		p.account.client.ForgetInstallation(p.scope) // it may have been installed again, with another id
	}
	return err
}

// permissions says what credentials need to register runners in a scope.
func permissions(scope fleet.Scope) string {
	switch {
	case scope.Enterprise != "":
		return "a token with the scope manage_runners:enterprise"
	case scope.Repo == "":
		return "the permission to write an organization's self-hosted runners (of a classic token: the scope admin:org)"
	default:
		return "the permission to write a repository's administration (of a classic token: the scope repo)"
	}
}

// explain turns a refusal into a sentence that says what to do.
func (p *place) explain(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrTarget), errors.Is(err, ErrCredentials), errors.Is(err, github.ErrAbsent):
		return err
	case errors.Is(err, github.ErrUnauthorized):
		return fmt.Errorf("%w: GitHub does not accept %s: %w", ErrCredentials, p.account.name, err)
	case errors.Is(err, fleet.ErrNoRunnerGroup):
		return fmt.Errorf("%w: %s has no runner group %q: create it, or set another: %w", ErrTarget, p.scope, p.target.Group, err)
	case errors.Is(err, fleet.ErrNotFound), errors.Is(err, fleet.ErrForbidden):
		return fmt.Errorf("%w: there is no %s, or %s lacks %s: %w", ErrTarget, p.scope, p.account.name, permissions(p.scope), err)
	default:
		return err
	}
}

// JIT implements Registrar.
func (p *place) JIT(ctx context.Context, ask JITRequest) (jit fleet.JIT, err error) {
	err = p.call(ctx, 1, func(ctx context.Context) error {
		work := ask.WorkFolder
		if work == "" {
			work = "_work"
		}
		jit, err = p.account.client.Mint(ctx, p.installation, fleet.MintRequest{
			Scope: p.scope, Name: ask.Name, Labels: ask.Labels, RunnerGroup: p.target.Group, WorkFolder: work,
		})
		return err
	})
	return jit, err
}

// group is the id of the target's runner group; 0 for the default one.
func (p *place) group(ctx context.Context) (int64, error) {
	if p.target.Group == "" {
		return 0, nil
	}
	return p.account.client.RunnerGroup(ctx, p.installation, p.scope, p.target.Group)
}

// Token implements Registrar. A group that does not exist is found here: a runner that is given one ends when it starts.
func (p *place) Token(ctx context.Context) (out Token, err error) {
	err = p.call(ctx, 1, func(ctx context.Context) error {
		if _, err := p.group(ctx); err != nil {
			return err
		}
		given, err := p.account.client.RegistrationToken(ctx, p.installation, p.scope)
		if err == nil {
			out = Token{Value: given.Value, ExpiresAt: given.ExpiresAt, URL: p.account.client.WebURL(p.scope)}
		}
		return err
	})
	return out, err
}

// Find implements Registrar.
func (p *place) Find(ctx context.Context, name string) (found Registration, err error) {
	err = p.call(ctx, 1, func(ctx context.Context) error {
		found, err = p.account.client.FindRunner(ctx, p.installation, p.scope, name)
		return err
	})
	return found, err
}

// List implements Registrar.
func (p *place) List(ctx context.Context, yield func(Registration) bool) error {
	return p.call(ctx, listTakes, func(ctx context.Context) error {
		return p.account.client.ListRunners(ctx, p.installation, p.scope, yield)
	})
}

// Remove implements Registrar.
func (p *place) Remove(ctx context.Context, subject Subject) (answer lifecycle.Answer) {
	if last, ok := p.account.refuses(p.installation); ok {
		return lifecycle.Answer{Detail: sentence("GitHub was not asked", last.err), NotBefore: last.until}
	}
	err := p.raw(ctx, 1, func(ctx context.Context) (err error) {
		answer, err = removal{
			remove: func(id int64) error { return p.account.client.RemoveRunner(ctx, p.installation, p.scope, id) },
			find: func() (Registration, error) {
				return p.account.client.FindRunner(ctx, p.installation, p.scope, subject.Name)
			},
		}.ask(subject)
		return err
	})
	if err != nil && answer == (lifecycle.Answer{}) {
		return Unasked(err)
	}
	return answer
}
