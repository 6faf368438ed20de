package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// known is a fleet that answers; failing makes it fail.
type known struct {
	pools    []adminapi.Pool
	jobs     []adminapi.Job
	accounts []adminapi.Account
	failing  error
	whys     []int64
	unserved *adminapi.UnservedJobs
}

func (k *known) Pools(context.Context) (adminapi.PoolList, error) {
	return adminapi.PoolList{Pools: k.pools, Unserved: k.unserved}, k.failing
}

func (k *known) Accounts(context.Context, bool) ([]adminapi.Account, error) {
	return k.accounts, k.failing
}

func (k *known) Jobs(_ context.Context, f cli.JobFilter) ([]adminapi.Job, error) {
	var found []adminapi.Job
	for _, j := range k.jobs {
		for _, state := range f.States {
			if j.State == state {
				found = append(found, j)
			}
		}
	}
	return found, k.failing
}

func (k *known) Why(_ context.Context, job int64) (adminapi.Why, error) {
	k.whys = append(k.whys, job)
	return adminapi.Why{JobID: job, Reasons: []adminapi.Reason{{
		Code: "account-at-limit", Sentence: fmt.Sprintf("Job %d waits for its account.", job), Remedy: "Raise the limit.",
	}}}, k.failing
}

func aFleet() *known {
	k := &known{
		pools: []adminapi.Pool{
			{Namespace: "bullpen-runners", Name: "linux-4", Labels: []string{"linux-4"}, Idle: 4, Busy: 34, Desired: 40, Intake: "Paused", Starting: 2, Demand: &adminapi.PoolDemand{Queued: 3}},
			{Namespace: "bullpen-runners", Name: "macos", Problems: []adminapi.Problem{{Condition: "Starved", Sentence: "No Mac has room."}}, Demand: &adminapi.PoolDemand{}},
		},
		accounts: []adminapi.Account{
			{ID: 1, Login: "acme", Budgets: []adminapi.Budget{{Platform: "linux", Usage: adminapi.Usage{Jobs: 9}, Limits: adminapi.Limits{Jobs: 10, MilliCPU: 1, MemoryMB: 1}}}},
			{ID: 2, Login: "zoo", Budgets: []adminapi.Budget{{Platform: "macos", Usage: adminapi.Usage{Jobs: 1}, Limits: adminapi.Limits{Jobs: 4, MilliCPU: 1, MemoryMB: 1}}}},
		},
		jobs: []adminapi.Job{{ID: 100, State: "running", Repository: "acme/runs", QueuedAt: noon.Add(-time.Hour), StartedAt: &noon}},
	}
	for i := range int64(30) { // newest first, as the API has them
		k.jobs = append(k.jobs, adminapi.Job{ID: 30 - i, State: "queued", Repository: "acme/app", Name: "build", QueuedAt: noon.Add(-time.Duration(i) * time.Minute)})
	}
	return k
}

// shown is a model of the fleet that has been read, on a screen of that size.
func shown(t require.TestingT, k *known, width, height int) model {
	m := model{
		read:  func() (Fleet, error) { return read(context.Background(), k, func() time.Time { return noon }) },
		why:   func(job int64) (adminapi.Why, error) { return k.Why(context.Background(), job) },
		every: time.Hour,
	}
	m = send(t, m, tea.WindowSizeMsg{Width: width, Height: height})
	return send(t, m, m.Init()())
}

func send(t require.TestingT, m model, msg tea.Msg) model {
	next, _ := m.Update(msg)
	require.IsType(t, model{}, next)
	return next.(model)
}

// press types keys, and has what one of them asks for answered.
func press(t *testing.T, m model, keys ...string) model {
	t.Helper()
	special := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "backspace": tea.KeyBackspace, "tab": tea.KeyTab}
	for _, name := range keys {
		key := tea.KeyPressMsg{Code: special[name]}
		if key.Code == 0 {
			key = tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
		}
		next, cmd := m.Update(key)
		m = next.(model)
		if cmd != nil {
			m = send(t, m, cmd())
		}
	}
	return m
}

func text(m model) string { return ansi.Strip(strings.Join(m.lines(), "\n")) }

func TestModel_ShowsTheFleetOn80x24(t *testing.T) {
	k := aFleet()
	k.accounts = append(k.accounts, adminapi.Account{ID: 3, Login: "nothing", Budgets: []adminapi.Budget{{Platform: "linux"}}})
	m := shown(t, k, 80, 24)
	require.Len(t, m.lines(), 24)
	require.NotContains(t, text(m), "nothing", "who has no limit and uses nothing is close to none")
	for _, want := range []string{
		"3 queued", "4 idle", "Paused", "34 busy", "> linux-4", "Pool macos: No Mac has room.", "LONGEST QUEUED", "account at limit  (acme/app)", "90%  jobs of acme on linux",
	} {
		require.Contains(t, text(m), want)
	}
	require.Equal(t, []int64{1, 2, 3, 4, 5}, k.whys, "only for those that have waited longest, which the API gives last")
	require.Less(t, strings.Index(text(m), " 1  account"), strings.Index(text(m), " 2  account"))
	require.Less(t, strings.Index(text(m), "jobs of acme"), strings.Index(text(m), "jobs of zoo"), "the closest first")
}

func TestModel_Keys(t *testing.T) {
	m := shown(t, aFleet(), 80, 24)
	require.Contains(t, text(press(t, m, "j")), "> macos")
	require.Contains(t, text(press(t, m, "down", "up")), "> linux-4")
	require.Contains(t, text(press(t, m, "j", "j", "j")), "> macos", "there is no row below the last")
	require.Contains(t, text(press(t, m, "j", "enter")), "No Mac has room.")
	require.Contains(t, text(press(t, m, "?")), "arrows, j and k")
	require.NotContains(t, text(press(t, m, "?", "esc")), "arrows, j and k")
	require.Contains(t, text(press(t, m, "a")), "> acme")
	require.Contains(t, text(press(t, m, "tab", "tab", "tab")), "[Pools]")

	list := press(t, m, "J")
	require.Contains(t, text(list), "> 1 ")
	require.Contains(t, text(press(t, list, "enter")), "Job 1 waits for its account.")
	require.Contains(t, text(press(t, list, "enter", "j")), "Job 2 waits for its account.", "the detail follows")
	late := whyRead{job: 1, why: adminapi.Why{Reasons: []adminapi.Reason{{Sentence: "Of job 1."}}}}
	require.NotContains(t, text(send(t, press(t, list, "enter", "j"), late)), "Of job 1.", "an answer about another job comes late")
	require.Contains(t, text(press(t, list, "G")), "> 100")
	require.Contains(t, text(press(t, list, "/", "r", "u", "n", "s", "enter")), "> 100")
	require.Contains(t, text(press(t, list, "/", "q", "j")), "no entries", "letters are text while the filter is written")
	require.Contains(t, text(press(t, list, "/", "q", "j", "esc")), "> 1 ")

	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}} {
		_, cmd := m.Update(key)
		require.NotNil(t, cmd)
		require.Equal(t, tea.QuitMsg{}, cmd())
	}
	typing := press(t, m, "/")
	_, cmd := typing.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
	require.NotNil(t, cmd, "Ctrl-C quits from everywhere")
}

// The selected row stays selected while jobs appear and disappear around it; when it disappears its details close.
func TestModel_TheChosenRowStaysChosen(t *testing.T) {
	k := aFleet()
	m := press(t, shown(t, k, 80, 24), "J", "j", "j", "enter")
	require.Contains(t, text(m), "Job 3 waits")
	k.jobs = append(k.jobs, adminapi.Job{ID: 999, State: "queued", QueuedAt: noon.Add(-9 * time.Hour)})
	m = send(t, m, m.Init()())
	require.Contains(t, text(m), "Job 3 waits")
	require.Contains(t, text(press(t, m, "esc")), "> 3 ")
	k.jobs = k.jobs[:1]
	m = send(t, m, m.Init()())
	require.Contains(t, text(m), "> 100")
	require.NotContains(t, text(m), "Job 3")
}

// A server that fails later leaves what is known in sight, and is asked again, but never twice at once.
func TestModel_AFailingServer(t *testing.T) {
	k := aFleet()
	m := shown(t, k, 80, 24)
	k.failing = errors.New("cannot reach the server\x1b[2J")
	next, cmd := m.Update(m.Init()())
	require.NotNil(t, cmd, "the next reading")
	m = next.(model)
	require.Contains(t, text(m), "! cannot reach the server")
	require.Contains(t, text(m), "> linux-4")
	_, cmd = m.Update(again{})
	require.IsType(t, fleetRead{}, cmd())
	_, cmd = m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	require.Nil(t, cmd)
	k.failing = nil
	require.NotContains(t, text(send(t, m, m.Init()())), "cannot reach")
}

// Whatever is shown fits, and what others wrote moves no cursor.
func TestModel_FitsEveryScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := aFleet()
		k.pools[0].Name = rapid.String().Draw(t, "pool")
		k.pools[1].Problems[0].Sentence = "\x1b[31m\r\n" + rapid.String().Draw(t, "problem")
		k.jobs[1].Name = "\x1b[2J\n構築" + rapid.String().Draw(t, "job")
		k.accounts[0].Login = "\t" + rapid.String().Draw(t, "login")
		width, height := rapid.IntRange(1, 200).Draw(t, "width"), rapid.IntRange(1, 60).Draw(t, "height")
		m := shown(t, k, width, height)
		for _, key := range rapid.SliceOfN(rapid.SampledFrom([]rune("jkGgpJa/?x")), 0, 8).Draw(t, "keys") {
			m = send(t, m, tea.KeyPressMsg{Code: key, Text: string(key)})
			if rapid.Bool().Draw(t, "enter") {
				m = send(t, m, tea.KeyPressMsg{Code: tea.KeyEnter})
			}
			lines := m.lines()
			require.LessOrEqual(t, len(lines), height)
			for _, line := range lines {
				require.LessOrEqual(t, ansi.StringWidth(line), width)
				for _, own := range []string{bold, reverse, normal} {
					line = strings.ReplaceAll(line, own, "")
				}
				require.False(t, strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }), "%q", line)
			}
		}
	})
}
