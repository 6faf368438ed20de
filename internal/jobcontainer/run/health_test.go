package run

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/health"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
)

// service is a plan with one service that has a check, and its session after the start.
func service(check health.Check) (plan.Plan, *session) {
	p := plan.Plan{Containers: []plan.Container{{
		Role: jobcontainer.RoleService, Name: "postgres", Container: "service-1-0", Image: "postgres:17", Argv: []string{"postgres"}, Health: &check,
	}}}
	s := &session{}
	s.add(p.Containers)
	s.Containers[0].Started = true
	return p, s
}

var slowCheck = health.Check{Command: []string{"true"}, Interval: 3 * time.Second, Timeout: time.Second, Retries: 3}

func unhealthy(int) (client.HealthResult, error) {
	return client.HealthResult{Exit: client.Exit{Code: 1}, Output: "no response\n::error::forged"}, nil
}

// GitHub's runner prints each wait, and sees the service when it has become healthy.
func TestAwaitHealth_WaitsInGitHubsWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		pod.guard("service-1-0").health = func(check int) (client.HealthResult, error) {
			if check < 2 {
				return unhealthy(check)
			}
			return client.HealthResult{}, nil
		}
		p, s := service(slowCheck)
		begun := time.Now()
		require.NoError(t, pod.call().awaitHealth(t.Context(), p, s))
		require.Equal(t, 9*time.Second, time.Since(begun), "at once after the third check, at 9 s")
		require.Equal(t, "postgres service is starting, waiting 2 seconds before checking again.\n"+
			"postgres service is starting, waiting 4 seconds before checking again.\n"+
			"postgres service is starting, waiting 8 seconds before checking again.\n"+
			"postgres service is healthy.\n", pod.text())
	})
}

// What counts is the state when GitHub's runner would look: at 14 s, and not in between.
func TestAwaitHealth_LetsAServiceRecoverBeforeTheNextLook(t *testing.T) {
	for recovers, want := range map[int]string{3: "", 99: "One or more containers failed to start."} {
		synctest.Test(t, func(t *testing.T) {
			pod := newStandIn(t)
			pod.guard("service-1-0").health = func(check int) (client.HealthResult, error) {
				if check < recovers {
					return unhealthy(check)
				}
				return client.HealthResult{}, nil
			}
			p, s := service(slowCheck)
			begun := time.Now()
			err := pod.call().awaitHealth(t.Context(), p, s)
			if want == "" {
				require.NoError(t, err, "unhealthy from 9 s to 12 s")
				require.Equal(t, 12*time.Second, time.Since(begun))
				return
			}
			require.EqualError(t, err, want)
			require.Equal(t, 14*time.Second, time.Since(begun))
		})
	}
}

func TestAwaitHealth_FailsWithTheLogOfTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		guard := pod.guard("service-1-0")
		guard.health, guard.output = unhealthy, "FATAL: no space\n##[error]forged\n"
		p, s := service(slowCheck)
		err := pod.call().awaitHealth(t.Context(), p, s)
		require.EqualError(t, err, "One or more containers failed to start.")
		require.Contains(t, pod.text(), "##[group]Print service container logs: postgres\nFATAL: no space\n# #[error]forged\n##[endgroup]\n")
		require.Contains(t, pod.text(), "no response\n| ::error::forged\n::error::Failed to initialize container postgres:17\n")
	})
}

// Docker's checks of a service that has ended would never come: the wait ends with the service.
func TestAwaitHealth_FailsWhenTheServiceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		check := slowCheck
		check.Interval = time.Hour
		begun := time.Now()
		pod.guard("service-1-0").status = func() (client.Status, error) {
			if time.Since(begun) < 5*time.Second {
				return client.Status{State: "running"}, nil
			}
			return client.Status{State: "exited", Exit: &client.Exit{Code: 3}}, nil
		}
		p, s := service(check)
		require.EqualError(t, pod.call().awaitHealth(t.Context(), p, s), "One or more containers failed to start.")
		require.Equal(t, 5*time.Second, time.Since(begun))
		require.Contains(t, pod.text(), "Service 'postgres' exited with code 3.")
	})
}

func TestExplain_SaysWhatALogMeansHere(t *testing.T) {
	for log, want := range map[string]string{
		"bind: Address already in use": "shows a port that is in use", "Error: listen EADDRINUSE: :::80": "shows a port that is in use",
		"s6-overlay-suexec: fatal: can only run as pid 1":                  "has an init that must be process 1",
		"Trying to run as user instance, but systemd must be run as PID 1": "has an init that must be process 1",
		"no space": "",
	} {
		pod := newStandIn(t)
		pod.call().explain(&member{Name: "db"}, log)
		require.Contains(t, pod.text(), want)
		require.Equal(t, want == "", pod.text() == "", log)
	}
}

// The job is cancelled while a service is starting, between two looks that are 32 s apart: the wait ends in that moment. The test gives the
// service an end of its own, later, so that a wait that goes on fails it, and hangs nothing.
func TestAwaitHealthy_EndsWhenTheJobIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		p, s := service(slowCheck)
		check := newChecked(p.Containers[0], time.Now())
		time.AfterFunc(time.Hour, func() { check.set(health.State{Status: health.Unhealthy}, false) })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(31*time.Second, cancel) // the fifth wait has begun at 30 s, and would end at 62 s
		begun := time.Now()
		_, err := pod.call().awaitHealthy(ctx, &s.Containers[0], check)
		require.ErrorIs(t, err, errCancelled)
		require.Equal(t, 31*time.Second, time.Since(begun))
	})
}
