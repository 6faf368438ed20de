package runner

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSteps_TalkToEachOther(t *testing.T) {
	x := run(t, `
  a:
    runs-on: x
    strategy: {matrix: {n: [3], os: [linux]}}
    env: {LEVEL: job, FROM: "${{ matrix.os }}-${{ github.sha }}"}
    outputs:
      sum: ${{ steps.one.outputs.sum }}
      many: ${{ steps.one.outputs.many }}
      odd: ${{ steps.nothing.outputs.x }}
      leaked: "${{ steps.one.outputs.leak }}"
    steps:
      - id: one
        name: First of ${{ matrix.n }}
        env: {LEVEL: step}
        run: |
          echo "level=$LEVEL from=$FROM ci=$CI job=$GITHUB_JOB repo=$GITHUB_REPOSITORY os=$RUNNER_OS"
          echo "sum=$(( ${{ matrix.n }} + 4 ))" >> "$GITHUB_OUTPUT"
          printf 'many<<END\none\ntwo\nEND\n' >> "$GITHUB_OUTPUT"
          echo "leak=x-hunter22-x" >> "$GITHUB_OUTPUT"
          echo "LATER=set" >> "$GITHUB_ENV"
          echo "GITHUB_SHA=forged" >> "$GITHUB_ENV"
          mkdir -p bin; printf '#!/bin/sh\necho found\n' > bin/mytool; chmod +x bin/mytool
          echo "$PWD/bin" >> "$GITHUB_PATH"
          echo "# done ${{ secrets.PASSWORD }}" >> "$GITHUB_STEP_SUMMARY"
      - id: two
        run: |
          echo "level=$LEVEL later=$LATER/${{ env.LATER }} sha=$GITHUB_SHA $(mytool)"
          echo "outcome=${{ steps.one.outcome }} status=${{ job.status }} sum=${{ steps.one.outputs.sum }}"
          cat "$GITHUB_EVENT_PATH"
          test "${{ github.token }}" = ghs_token
      - {run: pwd, working-directory: bin}
`)
	s := x.service
	require.Equal(t, "succeeded", s.completed.Conclusion, s.jobLog())
	log := s.jobLog()
	require.Contains(t, log, "level=step from=linux-abc123 ci=true job=a repo=acme/shop os=")
	require.Contains(t, log, "level=job later=set/set sha=abc123 found")
	require.Contains(t, log, "outcome=success status=success sum=7")
	require.Contains(t, log, `{"ref":"refs/heads/main"}`)
	require.Contains(t, log, "_work/shop/shop/bin\n")
	require.Equal(t, "7", s.completed.Outputs["sum"].Value)
	require.Equal(t, "one\ntwo", s.completed.Outputs["many"].Value)
	require.Equal(t, "", s.completed.Outputs["odd"].Value)
	require.NotContains(t, s.completed.Outputs, "leaked", "an output that holds a secret is left out")
	require.Contains(t, log, "Skip output 'leaked'")
	summary := s.blobs["/blob/StepSummarySignedBlobURL/"+s.stepID("First of 3")]
	require.Equal(t, "# done ***\n", string(summary.data))
	require.NotContains(t, log, "ghs_token")
}

func TestSteps_ConditionsAndContinueOnError(t *testing.T) {
	x := run(t, `
  a:
    runs-on: x
    steps:
      - {id: soft, name: soft, run: exit 1, continue-on-error: true}
      - {name: after soft, run: "test ${{ steps.soft.outcome }}-${{ steps.soft.conclusion }} = failure-success"}
      - {name: not yet, run: exit 9, if: failure()}
      - {name: hard, run: exit 1}
      - {name: skipped, run: exit 9}
      - {name: on failure, run: "test ${{ job.status }} = failure", if: "failure() && github.sha == 'abc123'"}
      - {name: always, run: "true", if: always()}
      - {name: bad, run: "true", if: "always() && fromJSON(github.sha)"}
`)
	require.Equal(t, "failed", x.service.completed.Conclusion)
	require.Equal(t, map[string]string{"Set up job": "succeeded", "soft": "succeeded", "after soft": "succeeded", "not yet": "skipped", "hard": "failed",
		"skipped": "skipped", "on failure": "succeeded", "always": "succeeded", "bad": "failed", "Complete job": "succeeded"}, x.service.conclusions())
	require.Contains(t, x.service.stepLog("bad"), "evaluating the step's condition")
}

func TestSteps_Shells(t *testing.T) {
	x := run(t, `
  a:
    runs-on: x
    defaults: {run: {shell: bash, working-directory: sub}}
    steps:
      - {name: make, run: "mkdir -p sub", working-directory: .}
      - {name: pipefail, run: "false | true", continue-on-error: true, id: p}
      - {name: sh, run: 'test -z "$BASH_VERSION$POSIXLY_CORRECT" || true; false | true', shell: sh}
      - {name: default dir, run: 'test "$(basename "$PWD")" = sub && test ${{ steps.p.outcome }} = failure'}
      - {name: other, run: x, shell: "${{ format('{0}', 'zsh') }}", continue-on-error: true}
      - {name: nowhere, run: x, working-directory: /does/not/exist, continue-on-error: true}
      - {name: errexit, run: "false\necho unreached", continue-on-error: true}
`)
	require.Equal(t, "succeeded", x.service.completed.Conclusion, x.service.jobLog())
	require.Contains(t, x.service.stepLog("other"), `the shell "zsh" is not supported`)
	require.Contains(t, x.service.stepLog("nowhere"), "no such file or directory")
	require.NotContains(t, x.service.stepLog("errexit"), "Z unreached")
}

func TestSteps_MasksAndAnnotations(t *testing.T) {
	x := run(t, `
  a:
    runs-on: x
    steps:
      - name: talk
        run: |
          echo "::add-mask::kiwi"
          echo "kiwi and ${{ secrets.PASSWORD }} and $(printf gh; printf s_token)"
          echo "::error file=a.go,line=3,col=4,title=Oh::bad kiwi%0Ax"
          echo "::warning::careful"
          echo "::notice::fyi"
          echo "::group::inner"
          echo "::endgroup::"
          echo "::set-output name=x::y"
          echo "::stop-commands::tok"
          echo "::error::not this"
          echo "::tok::"
          echo "::debug::deep"
          printf 'no newline at the end'
      - {name: none, run: 'test -z "${{ steps.talk.outputs.x }}"'}
`)
	s := x.service
	require.Equal(t, "succeeded", s.completed.Conclusion)
	log := s.stepLog("talk")
	require.Contains(t, log, "*** and *** and ***\n")
	require.Contains(t, log, "::add-mask::***")
	require.Contains(t, log, "##[error]bad ***\n")
	require.Contains(t, log, "##[group]inner\n")
	require.Contains(t, log, "##[warning]The command 'set-output' has no effect")
	require.Contains(t, log, "Z ::error::not this\n")
	require.Contains(t, log, "##[debug]deep")
	require.True(t, strings.HasSuffix(log, "no newline at the end\n"))
	require.Equal(t, []annotation{
		{Level: "FAILURE", Message: "bad ***\nx", RawDetails: "Oh", Path: "a.go", StartLine: 3, EndLine: 3, StartColumn: 4, EndColumn: 4},
		{Level: "WARNING", Message: "careful"}, {Level: "NOTICE", Message: "fyi"},
	}, s.completed.StepResults[1].Annotations)
	// The script itself is printed before its add-mask runs, as on GitHub; after that the word is gone.
	_, after, _ := strings.Cut(s.jobLog(), "::add-mask::***")
	require.NotContains(t, after, "kiwi")
	require.NotContains(t, s.jobLog(), "hunter22")
}

func TestSteps_BadCommandFileFailsTheStep(t *testing.T) {
	x := run(t, `  a: {runs-on: x, steps: [{name: bad, run: 'echo nonsense >> "$GITHUB_OUTPUT"'}, {name: gone, run: 'rm "$GITHUB_ENV"', if: always()}]}`)
	require.Equal(t, "failed", x.service.completed.Conclusion)
	require.Contains(t, x.service.stepLog("bad"), "reading GITHUB_OUTPUT: bad command file: line 1")
	require.Equal(t, "succeeded", x.service.conclusions()["gone"])
}

func TestSteps_CancelledByTheService(t *testing.T) {
	x := newTrial(t, false)
	x.service.queue(`
  a:
    runs-on: x
    steps:
      - {name: long, run: "sleep 1000 & sleep 1000"}
      - {name: next, run: "true"}
      - {name: tidy, run: "test ${{ job.status }} = cancelled", if: cancelled()}
      - {name: failed, run: "true", if: failure()}
`)
	x.start()
	x.service.awaitStep("long", "in_progress")
	x.service.messages <- message{Type: messageCancel, Body: `{"jobId":"another","timeout":"00:05:00"}`}
	x.service.cancel("00:05:00")
	require.NoError(t, x.wait(), "a cancelled job exits with 0 too")
	require.Equal(t, "canceled", x.service.completed.Conclusion)
	require.Equal(t, map[string]string{"Set up job": "succeeded", "long": "canceled", "next": "skipped", "tidy": "succeeded", "failed": "skipped",
		"Complete job": "succeeded"}, x.service.conclusions())
	require.Contains(t, x.service.stepLog("long"), "The operation was canceled.")
	require.Contains(t, x.log.String(), "ignoring a cancellation of another job")
}

func TestSteps_AlwaysRunsOnWhenCancelled(t *testing.T) {
	x := newTrial(t, false)
	gate := filepath.Join(t.TempDir(), "gate")
	require.NoError(t, syscall.Mkfifo(gate, 0o600))
	x.opts.Environ = append(x.opts.Environ, "GATE="+gate)
	x.service.queue(`  a: {runs-on: x, steps: [{name: stubborn, run: 'read x < "$GATE"; echo "got $x"', if: always()}, {name: next, run: "true"}]}`)
	x.start()
	x.service.awaitStep("stubborn", "in_progress")
	x.service.cancel("00:05:00")
	x.service.await("the cancellation's arrival", func() bool { return len(x.service.messages) == 0 && len(x.service.queries) == 3 })
	require.NoError(t, os.WriteFile(gate, []byte("through\n"), 0o600))
	require.NoError(t, x.wait())
	require.Contains(t, x.service.stepLog("stubborn"), "Z got through\n")
	require.Equal(t, "canceled", x.service.completed.Conclusion)
	require.Equal(t, "succeeded", x.service.conclusions()["stubborn"])
	require.Equal(t, "skipped", x.service.conclusions()["next"])
}

// deaf is a step that ignores every signal it can, and says when it is ready.
const deaf = `  a: {runs-on: x, steps: [{name: deaf, run: "trap 'echo INT' INT; trap 'echo TERM' TERM; echo $$ > \"$READY\"; while :; do sleep 0.01 || :; done"%s}]}`

func deafTrial(t *testing.T, extra string) (*trial, string) {
	x := newTrial(t, true)
	ready := filepath.Join(t.TempDir(), "ready")
	require.NoError(t, syscall.Mkfifo(ready, 0o600))
	x.opts.Environ = append(x.opts.Environ, "READY="+ready)
	x.service.queue(strings.Replace(deaf, "%s", extra, 1))
	x.start()
	return x, ready
}

// awaitReady returns the script's process id once its traps are set.
func awaitReady(t *testing.T, ready string) int {
	data, err := os.ReadFile(ready)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	return pid
}

// requireGroupGone waits until no process of a group lives. Orphans end in the kernel's own time, and stay zombies
// where no parent reaps them: those do not count.
func requireGroupGone(t *testing.T, group int) {
	t.Helper()
	require.Eventually(t, func() bool {
		if syscall.Kill(-group, 0) != nil {
			return true
		}
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		require.NoError(t, err)
		for _, file := range stats {
			data, err := os.ReadFile(file)
			if err != nil {
				continue // it has exited since
			}
			fields := strings.Fields(string(data[strings.LastIndex(string(data), ")")+1:]))
			if fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
				return false
			}
		}
		return len(stats) > 0
	}, 10*time.Second, 5*time.Millisecond, "a process of the group is still there")
}

func TestSteps_DeafStepIsKilledInTheEnd(t *testing.T) {
	x, ready := deafTrial(t, "")
	pid := awaitReady(t, ready)
	x.service.cancel("00:05:00")
	x.clock.fire(t, 7500*time.Millisecond, 7500*time.Millisecond)
	x.clock.fire(t, 2500*time.Millisecond, 2500*time.Millisecond)
	require.NoError(t, x.wait())
	require.Equal(t, "canceled", x.service.completed.Conclusion)
	requireGroupGone(t, pid)
}

func TestSteps_CancelPatienceEnds(t *testing.T) {
	x, ready := deafTrial(t, ", if: always()")
	pid := awaitReady(t, ready)
	x.service.cancel("00:00:42")
	x.clock.fire(t, 42*time.Second, 42*time.Second)
	require.NoError(t, x.wait())
	require.Equal(t, "canceled", x.service.completed.Conclusion)
	requireGroupGone(t, pid)
}

func TestSteps_StepTimesOut(t *testing.T) {
	x := newTrial(t, true)
	x.service.queue(`  a: {runs-on: x, steps: [{name: slow, run: sleep 1000, timeout-minutes: 2}, {name: next, run: "true", if: failure()}]}`)
	x.start()
	x.clock.fire(t, 2*time.Minute, 2*time.Minute)
	require.NoError(t, x.wait())
	require.Equal(t, "failed", x.service.completed.Conclusion)
	require.Equal(t, "failed", x.service.conclusions()["slow"])
	require.Equal(t, "succeeded", x.service.conclusions()["next"])
	require.Contains(t, x.service.stepLog("slow"), "timed out")
}

func TestSteps_JobTimesOut(t *testing.T) {
	x := newTrial(t, true)
	x.service.queue(`  a: {runs-on: x, timeout-minutes: 3, steps: [{name: slow, run: sleep 1000}]}`)
	x.start()
	x.service.awaitStep("slow", "in_progress")
	x.clock.fire(t, 3*time.Minute, 3*time.Minute)
	require.NoError(t, x.wait())
	require.Equal(t, "canceled", x.service.completed.Conclusion)
	require.Contains(t, x.service.completed.Annotations[0].Message, "maximum execution time of 3m")
}

func TestSteps_LockIsRenewedAndItsLossCancels(t *testing.T) {
	x := newTrial(t, true)
	x.service.queue(`  a: {runs-on: x, steps: [{name: slow, run: sleep 1000}]}`)
	x.start()
	x.service.awaitStep("slow", "in_progress")
	x.clock.fire(t, renewEvery, renewEvery)
	x.service.await("a renewal", func() bool { return x.service.calls["/run/renewjob"] == 2 })
	x.service.fail("/run/renewjob", fault{status: 500}, fault{404, "actions-run-service", ""})
	x.clock.fire(t, renewEvery, renewEvery)
	x.clock.fire(t, renewEvery, renewEvery)
	require.NoError(t, x.wait())
	require.Equal(t, 4, x.service.count("/run/renewjob"), "one before the worker, then one a minute")
	require.Contains(t, x.service.bodies["/run/renewjob"][0], x.service.job.JobID)
	require.Equal(t, "canceled", x.service.completed.Conclusion)
	require.Contains(t, x.service.completed.Annotations[0].Message, "lost the job's lock")
}

// A runner that is asked to stop still holds the job's lock and polls its service until the job has ended.
func TestSteps_LockIsRenewedWhileStopping(t *testing.T) {
	x := newTrial(t, true)
	gate := filepath.Join(t.TempDir(), "gate")
	require.NoError(t, syscall.Mkfifo(gate, 0o600))
	x.opts.Environ = append(x.opts.Environ, "GATE="+gate)
	x.service.queue(`  a: {runs-on: x, steps: [{name: tidy, run: 'cat "$GATE"', if: always()}]}`)
	x.start()
	x.service.awaitStep("tidy", "in_progress")
	x.stop()
	x.clock.fire(t, renewEvery, renewEvery)
	x.service.await("a renewal", func() bool { return x.service.calls["/run/renewjob"] == 1 })
	x.clock.fire(t, renewEvery, renewEvery)
	x.service.await("another renewal", func() bool { return x.service.calls["/run/renewjob"] == 2 })
	require.NoError(t, os.WriteFile(gate, []byte("done\n"), 0o600))
	require.NoError(t, x.wait())
	require.Equal(t, "canceled", x.service.completed.Conclusion)
	require.Equal(t, "succeeded", x.service.conclusions()["tidy"])
}

func TestSteps_RemovedWhileBusyFinishesTheJob(t *testing.T) {
	x := newTrial(t, false)
	gate := filepath.Join(t.TempDir(), "gate")
	require.NoError(t, syscall.Mkfifo(gate, 0o600))
	x.opts.Environ = append(x.opts.Environ, "GATE="+gate)
	x.service.queue(`  a: {runs-on: x, steps: [{name: busy, run: 'cat "$GATE"'}]}`)
	x.start()
	x.service.awaitStep("busy", "in_progress")
	x.service.await("the poll that is held", func() bool { return len(x.service.queries) == 2 })
	x.service.fail("/broker/message", fault{404, "actions-broker-listener", "RunnerNotFound"})
	x.service.messages <- message{Type: "RunnerRefresh"} // ends the poll that is held, so that there is another
	x.service.await("the refused poll", func() bool { return len(x.service.queries) == 3 })
	require.NoError(t, os.WriteFile(gate, []byte("go on\n"), 0o600))
	require.NoError(t, x.wait())
	require.Equal(t, "succeeded", x.service.completed.Conclusion)
}

func TestSteps_LogGrowsWhileTheStepRuns(t *testing.T) {
	x := newTrial(t, true)
	gate := filepath.Join(t.TempDir(), "gate")
	require.NoError(t, syscall.Mkfifo(gate, 0o600))
	x.opts.Environ = append(x.opts.Environ, "GATE="+gate)
	x.service.queue(`  a: {runs-on: x, steps: [{id: s, name: chatty, run: 'echo early > "$GATE"; echo early; read x < "$GATE"; echo late'}]}`)
	x.start()
	_, err := os.ReadFile(gate)
	require.NoError(t, err)
	id := x.service.job.Steps[0].ID
	path := "/blob/StepLogsSignedBlobURL/" + id
	x.clock.fire(t, time.Second, time.Second)
	x.service.await("the first piece of the log", func() bool { return x.service.blobs[path] != nil && x.service.blobs[path].pieces > 1 })
	require.NoError(t, os.WriteFile(gate, []byte("x\n"), 0o600))
	require.NoError(t, x.wait())
	b := x.service.blobs[path]
	require.True(t, b.sealed)
	require.Equal(t, "AppendBlob", b.kind)
	require.Contains(t, string(b.data), "Z late\n")
	require.Equal(t, 1, strings.Count(string(b.data), "Z early\n"), "no piece is sent twice")
}

func TestSteps_ProcessesLeftBehindEndWithTheJob(t *testing.T) {
	dir := t.TempDir()
	x := newTrial(t, false)
	x.opts.Environ = append(x.opts.Environ, "PIDFILE="+filepath.Join(dir, "pid"))
	x.service.queue(`  a: {runs-on: x, steps: [{run: 'sleep 1000 > /dev/null 2>&1 & echo $! > "$PIDFILE"'}, {name: alive, run: 'kill -0 "$(cat "$PIDFILE")"'}]}`)
	x.start()
	require.NoError(t, x.wait())
	require.Equal(t, "succeeded", x.service.completed.Conclusion, "later steps may use it")
	require.Contains(t, x.service.jobLog(), "Cleaned up 1 process groups")
	requireGone(t, awaitReady(t, filepath.Join(dir, "pid")))
}

// requireGone waits until a process is gone or a zombie.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil && syscall.Kill(pid, 0) != nil || strings.Contains(string(data), ") Z ")
	}, 10*time.Second, 5*time.Millisecond, "the process is still there")
}

func TestSteps_Hooks(t *testing.T) {
	dir := t.TempDir()
	hook := func(name, script string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(script), 0o755))
		return file
	}
	t.Run("run around the job", func(t *testing.T) {
		x := newTrial(t, false)
		x.opts.Environ = append(x.opts.Environ,
			"ACTIONS_RUNNER_HOOK_JOB_STARTED="+hook("a.sh", `echo before; echo FROM_HOOK=yes >> "$GITHUB_ENV"`),
			"ACTIONS_RUNNER_HOOK_JOB_COMPLETED="+hook("b.sh", "echo after"))
		x.service.queue(`  a: {runs-on: x, steps: [{run: 'test "$FROM_HOOK" = yes'}]}`)
		x.start()
		require.NoError(t, x.wait())
		require.Equal(t, "succeeded", x.service.completed.Conclusion)
		require.Contains(t, x.service.stepLog("Set up job"), "Z before\n")
		require.Contains(t, x.service.stepLog("Complete job"), "Z after\n")
	})
	t.Run("that fail before it fail the job", func(t *testing.T) {
		x := newTrial(t, false)
		x.opts.Environ = append(x.opts.Environ, "ACTIONS_RUNNER_HOOK_JOB_STARTED="+hook("c.sh", "exit 4"))
		x.service.queue(`  a: {runs-on: x, steps: [{name: step, run: "true"}]}`)
		x.start()
		require.NoError(t, x.wait())
		require.Equal(t, "failed", x.service.completed.Conclusion)
		require.Equal(t, "skipped", x.service.conclusions()["step"])
		require.Contains(t, x.service.stepLog("Set up job"), "failed with exit code 4")
	})
	t.Run("run after a cancelled job too", func(t *testing.T) {
		x := newTrial(t, false)
		x.opts.Environ = append(x.opts.Environ, "ACTIONS_RUNNER_HOOK_JOB_COMPLETED="+hook("d.sh", "echo swept"))
		x.service.queue(`  a: {runs-on: x, steps: [{name: long, run: sleep 1000}]}`)
		x.start()
		x.service.awaitStep("long", "in_progress")
		x.service.cancel("")
		require.NoError(t, x.wait())
		require.Contains(t, x.service.stepLog("Complete job"), "Z swept\n")
	})
}

func TestSteps_BadDirectoriesFailTheJob(t *testing.T) {
	x := newTrial(t, false)
	require.NoError(t, os.WriteFile(filepath.Join(x.opts.WorkDir, "_work"), nil, 0o600))
	x.service.queue(`  a: {runs-on: x, steps: [{name: step, run: "true"}]}`)
	x.start()
	require.NoError(t, x.wait())
	require.Equal(t, "failed", x.service.completed.Conclusion)
	require.Contains(t, x.service.stepLog("Set up job"), "making the job's directories")
}
