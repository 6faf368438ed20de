//go:build !production

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/load"
)

// loadForge submits to the stand-in.
type loadForge struct{ *standin.AdminClient }

// standIn is the one that was named, or that of the `bullpen up` of this machine.
func (f *loadFlags) standIn(conn *cli.Connection) (loadForge, error) {
	address, tokenFile := f.github, f.tokenFile
	if address == "" {
		if conn.StateDir == "" && (conn.Server != "" || os.Getenv(cli.EnvServer) != "") { // jobs of one fleet would be looked for in another
			return loadForge{}, errors.New("--server or " + cli.EnvServer + " names a server: also name its stand-in for GitHub with --github")
		}
		site, found, err := conn.Site()
		switch {
		case err != nil:
			return loadForge{}, err
		case !found:
			return loadForge{}, errors.New("no stand-in for GitHub found. Start `bullpen up`, or use --github and --server")
		case site.GitHub == "":
			return loadForge{}, errors.New("this `bullpen up` uses the real GitHub, which is not supported. Start one without --github-app")
		}
		address = site.GitHub
		if tokenFile == "" {
			tokenFile = site.AdminTokenFile
		}
	}
	token, err := readSecret("--github-admin-token-file", tokenFile)
	if err != nil {
		return loadForge{}, err
	}
	if err := checkStandIn(address, token != ""); err != nil {
		return loadForge{}, err
	}
	return loadForge{&standin.AdminClient{URL: address, Token: token}}, nil
}

func checkStandIn(address string, secret bool) error {
	at, err := url.Parse(address)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || at.User != nil {
		return fmt.Errorf("--github must be a URL such as http://127.0.0.1:8090, got %q", address)
	}
	ip := net.ParseIP(at.Hostname())
	if secret && at.Scheme == "http" && at.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--github %s would send the admin token unencrypted. Use https, or forward a local port", address)
	}
	return nil
}

// prepare adds the accounts and repositories of the mix that the stand-in does not have.
func (f loadForge) prepare(ctx context.Context, mix load.Mix) error {
	known, err := f.Installations(ctx)
	var refused *standin.AdminError
	switch {
	case errors.As(err, &refused):
		return fmt.Errorf("%s is not usable as the stand-in for GitHub: %w. Check the URL and --github-admin-token-file; the real GitHub is not supported", f.URL, err)
	case err != nil:
		return err
	}
	for _, in := range missing(mix, known) {
		if _, err := f.Install(ctx, in); err != nil {
			return fmt.Errorf("adding the account %s to the stand-in: %w", in.Account, err)
		}
	}
	return nil
}

// missing are the repositories of the mix that are not installed, by account in the mix's order.
func missing(mix load.Mix, known []standin.Installation) []standin.Installation {
	var out []standin.Installation
	for _, kind := range mix.Runs {
		owner, name, _ := strings.Cut(kind.Repository, "/")
		has := func(in standin.Installation) bool {
			return strings.EqualFold(in.Account, owner) && slices.ContainsFunc(in.Repositories, func(r string) bool { return strings.EqualFold(r, name) })
		}
		if slices.ContainsFunc(known, has) || slices.ContainsFunc(out, has) {
			continue
		}
		same := func(in standin.Installation) bool { return strings.EqualFold(in.Account, owner) }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i].Repositories = append(out[i].Repositories, name)
			continue
		}
		in := standin.Installation{Account: owner, Repositories: []string{name}}
		if i := slices.IndexFunc(known, same); i >= 0 {
			in.ID, in.Account, in.Type = known[i].ID, known[i].Account, known[i].Type
		}
		out = append(out, in)
	}
	return out
}

// Submit starts one run.
func (f loadForge) Submit(ctx context.Context, repository, workflow string) ([]int64, error) {
	runs, err := f.AdminClient.Submit(ctx, standin.Submission{FileName: "load.yaml", Content: workflow, Repo: repository})
	if err != nil {
		return nil, err
	}
	var jobs []int64
	for _, run := range runs {
		jobs = append(jobs, run.Jobs...)
	}
	return jobs, nil
}

// progressLine shows progress: on a terminal in one line that changes, else a line from time to time.
type progressLine struct {
	out      io.Writer
	terminal bool
	width    int
	drawn    bool
	next     time.Duration
}

// progressEvery is the time between two lines where there is no terminal.
const progressEvery = 10 * time.Second

func newProgressLine(out io.Writer) *progressLine {
	p := &progressLine{out: out}
	p.width, p.terminal = terminalWidth(out)
	return p
}

func (p *progressLine) show(now load.Progress) {
	line := now.Line()
	if p.terminal {
		if letters := []rune(line); len(letters) >= p.width { // a line that wraps cannot be drawn over
			line = string(letters[:p.width-1])
		}
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
		p.drawn = true
		return
	}
	if now.Elapsed >= p.next {
		fmt.Fprintln(p.out, line)
		p.next = now.Elapsed + progressEvery
	}
}

func (p *progressLine) end() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
