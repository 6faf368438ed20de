package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/steplog"
)

// linkVolumes makes the runner's directories and the workflow's volumes appear where a container expects them.
func (c *call) linkVolumes(ctx context.Context, m *member, p plan.Container) error {
	var links []client.Link
	for _, link := range p.Links {
		if rest, shared := strings.CutPrefix(link.Path, jobcontainer.GitHubDir+"/"); shared {
			if err := makeLink(filepath.Join(c.GitHubDir, rest), link.Target); err != nil {
				return fmt.Errorf("linking %s for container %s: %w", link.Path, m.Name, err)
			}
			continue
		}
		links = append(links, client.Link{Volume: link.Path, Source: link.Target, Target: link.Path})
	}
	for _, v := range p.Volumes {
		link := client.Link{Volume: v.Text, Source: v.Source, Target: v.Target, Keep: v.Keep}
		if !v.Optional {
			links = append(links, link)
			continue
		}
		var failure *client.Failure
		switch err := c.link(ctx, m, link); {
		case errors.As(err, &failure):
			c.say(steplog.Line(failure.Text))
		case err != nil:
			return err
		}
	}
	if len(links) == 0 {
		return nil
	}
	return c.link(ctx, m, links...)
}

// link has the guard link directories. A failure of it is a sentence for the job's log.
func (c *call) link(ctx context.Context, m *member, links ...client.Link) error {
	err := c.Guard(m.Container).Links(ctx, links)
	var failure *client.Failure
	if errors.As(err, &failure) {
		return &refusal{text: failure.Text, cause: failure}
	}
	if err != nil {
		return c.reason(m, err)
	}
	return nil
}

func isFailure(err error, code wire.FailureCode) bool {
	var failure *client.Failure
	return errors.As(err, &failure) && failure.Code == code
}

// makeLink makes a symbolic link in the volume that all containers of the job share, unless it is there.
func makeLink(path, target string) error {
	if have, err := os.Readlink(path); err == nil && have == target {
		return nil
	}
	err := os.Symlink(target, path)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Remove(path); err != nil { // another job's, or another repository's; nothing that has content
		return err
	}
	return os.Symlink(target, path)
}
