package run

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
)

// tries is a broker that grants a container at each try, with a name of its own.
type tries struct {
	*standIn
	ids []string
}

func (b *tries) Ask(_ context.Context, request jobcontainer.Request) (jobcontainer.Response, error) {
	b.ids = append(b.ids, request.ID)
	response := jobcontainer.Response{ID: request.ID}
	for _, wanted := range request.Containers {
		name := fmt.Sprintf("%s-%d-%d", wanted.Role, len(b.ids), wanted.Position)
		response.Containers = append(response.Containers, jobcontainer.Granted{
			Role: wanted.Role, Position: wanted.Position, Name: name, Image: wanted.Image + "@sha256:1a2b", Config: jobcontainer.ImageConfig{OS: "linux", Architecture: runtime.GOARCH, Cmd: []string{"run"}},
		})
	}
	return response, nil
}

// begins is a job with one service of which each try is interrupted, up to the last of so many.
func begins(t *testing.T, interrupted int) (*tries, *session, plan.Plan, error) {
	b := &tries{standIn: newStandIn(t)}
	c := b.call()
	c.Broker = b
	c.input = hook.Input{ResponseFile: "/w/_temp/_runner_hook_responses/0F1e.json", Prepare: hook.PrepareJobArgs{Services: []hook.Container{{Image: "redis:7"}, {Image: "db:1"}}}}
	draft, err := plan.ForJob(plan.Job{Services: c.input.Prepare.Services, Names: []string{"redis", "db"}}, c.runner())
	require.NoError(t, err)
	for try := 1; try <= jobcontainer.MaxTries; try++ {
		close(b.guard(fmt.Sprintf("service-%d-0", try)).ready)
		if try > interrupted {
			close(b.guard(fmt.Sprintf("service-%d-1", try)).ready)
			continue
		}
		b.tell(letter.Failure{Container: fmt.Sprintf("service-%d-1", try), Text: "A container of image 'db:1@sha256:1a2b' could not be started (EOF).", Final: true, Retriable: true})
	}
	s := &session{}
	p, err := c.begin(t.Context(), draft, s)
	return b, s, p, err
}

func TestBegin_AsksAgainForWhatDidNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, p, err := begins(t, 2)
		require.NoError(t, err)
		require.Equal(t, []string{"0f1e", "0f1e-2", "0f1e-3"}, b.ids)
		require.Len(t, s.Containers, 2)
		for i, name := range []string{"service-3-0", "service-3-1"} {
			require.Equal(t, name, s.Containers[i].Container)
			require.Equal(t, name, p.Containers[i].Container)
		}
		require.Equal(t, []time.Duration{0}, b.guard("service-1-0").ends, "it would have the ports of the next one")
		require.Equal(t, []time.Duration{0}, b.guard("service-2-0").ends)
		require.Empty(t, b.guard("service-3-0").ends)
		require.Contains(t, b.text(), "A container of image 'db:1' could not be started (EOF).\nStarting the job's containers again (3 of 3).")
	})
}

func TestBegin_GivesUpAfterThreeTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, _, err := begins(t, 3)
		require.EqualError(t, err, "A container of image 'db:1' could not be started (EOF).", "as the workflow has its name")
		require.Len(t, b.ids, jobcontainer.MaxTries)
		require.Len(t, s.Containers, 2, "cleanup_job ends them")
	})
}
