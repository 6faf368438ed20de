//go:build unix

package mac

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// Script makes commands do something else than usual.
type Script struct {
	// Rules, of which the first that fires decides.
	Rules []Rule `json:"rules,omitempty"`
}

// Rule changes what some calls do.
type Rule struct {
	// Command is the name, such as "pfctl"; empty means each.
	Command string `json:"command,omitempty"`
	// Args are words that the arguments must hold, in this order and not necessarily side by side.
	Args []string `json:"args,omitempty"`
	// Skip is how many matching calls go unharmed first; Times, how many are then changed (0: all of them).
	Skip  int `json:"skip,omitempty"`
	Times int `json:"times,omitempty"`
	// Effect is what happens.
	Effect Effect `json:"effect"`
	// Exit, Stdout and Stderr are the answer.
	Exit   int    `json:"exit,omitempty"`
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
}

// Effect of a rule.
type Effect string

// The effects.
const (
	// EffectAnswer only answers.
	EffectAnswer Effect = "answer"
	// EffectFailAfterwards does what was asked, and answers as the rule says.
	EffectFailAfterwards Effect = "fail-afterwards"
	// EffectHang never ends, and ignores all signals but SIGKILL.
	EffectHang Effect = "hang"
	// EffectKill is killed before it does anything; EffectKillAfterwards, once it has done what was asked.
	EffectKill           Effect = "kill"
	EffectKillAfterwards Effect = "kill-afterwards"
)

const (
	scriptFile = "script.json"
	firedFile  = "fired.json"
	callsFile  = "calls.jsonl"
)

// WriteScript puts a script in force. Rules count from the start again.
func (r Root) WriteScript(s Script) error {
	lock, err := r.lock(firedFile)
	if err != nil {
		return err
	}
	defer lock.Close()
	return errors.Join(r.write(firedFile, map[string]int{}), r.write(scriptFile, s))
}

func (rule Rule) fits(name string, args []string) bool {
	if rule.Command != "" && rule.Command != name {
		return false
	}
	wanted := rule.Args
	for _, arg := range args {
		if len(wanted) > 0 && wanted[0] == arg {
			wanted = wanted[1:]
		}
	}
	return len(wanted) == 0
}

// fire finds the first rule for this call that is due, and counts that it was asked.
func (r Root) fire(name string, args []string) (Rule, error) {
	var s Script
	if err := r.read(scriptFile, &s); err != nil || len(s.Rules) == 0 {
		return Rule{}, err
	}
	var due Rule
	err := update(r, firedFile, func(counts *map[string]int) error {
		if *counts == nil {
			*counts = map[string]int{}
		}
		for i, rule := range s.Rules {
			if !rule.fits(name, args) {
				continue
			}
			key := strconv.Itoa(i)
			(*counts)[key]++
			if n := (*counts)[key]; n > rule.Skip && (rule.Times == 0 || n <= rule.Skip+rule.Times) {
				due = rule
				return nil
			}
		}
		return nil
	})
	return due, err
}

// Call is one call of one of the Mac's commands.
type Call struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// User is who called, on the Mac.
	User string   `json:"user"`
	Name string   `json:"name"`
	Args []string `json:"args"`
	// Ended indicates that the command came to its end; it does not for one that was killed, or runs.
	Ended bool `json:"ended,omitempty"`
	Exit  int  `json:"exit,omitempty"`
	// Stdin is how many bytes of standard input the command itself has read.
	Stdin int `json:"stdin,omitempty"`
}

// Line is the call as one would type it.
func (c Call) Line() string { return strings.Join(append([]string{c.Name}, c.Args...), " ") }

func (r Root) recordCall(c *call) (string, error) {
	now := time.Now()
	id := fmt.Sprintf("%d-%d", os.Getpid(), now.UnixNano())
	return id, r.appendCall(Call{ID: id, Time: now, User: c.user, Name: c.name, Args: c.Args})
}

func (r Root) recordEnd(id string, exit, stdin int) error {
	return r.appendCall(Call{ID: id, Ended: true, Exit: exit, Stdin: stdin})
}

// appendCall adds a line; one write of it is one line, however many processes write.
func (r Root) appendCall(record Call) error {
	line, err := json.Marshal(record)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(r.state(callsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// Calls are the calls of the Mac's commands, in the order in which they began.
func (r Root) Calls() ([]Call, error) {
	data, err := os.ReadFile(r.state(callsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var calls []Call
	at := map[string]int{}
	for line := range strings.Lines(string(data)) {
		var record Call
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			return nil, fmt.Errorf("reading the calls: %w", err)
		}
		if i, known := at[record.ID]; known {
			calls[i].Ended, calls[i].Exit, calls[i].Stdin = true, record.Exit, record.Stdin
			continue
		}
		at[record.ID] = len(calls)
		calls = append(calls, record)
	}
	return calls, nil
}
