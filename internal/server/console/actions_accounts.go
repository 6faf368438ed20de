package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

func accountPath(at location) string {
	return adminapi.PathAccounts + "/" + url.PathEscape(at.path("account"))
}

// accountPage is where an account is seen, by what names it even when it is renamed.
func accountPage(id int64) string { return "/ui/accounts/@" + strconv.FormatInt(id, 10) }

func readAccount(v *visitor, at location) (adminapi.Account, error) {
	var account adminapi.Account
	err := v.get(accountPath(at), &account)
	return account, err
}

func limitsCall(at location) call {
	return call{method: http.MethodPatch, path: accountPath(at) + "/limits"}
}

// limitField is one limit in the form.
type limitField struct {
	Name, Label, Hint string // Name is of the input
	Value, Was        string
}

// touched reports whether the user has changed the field. An unchanged field shows the present value, whatever it was when the form was
// read: otherwise submitting the form again would revert a concurrent change.
func (f limitField) touched(typed url.Values) bool {
	return typed.Has(f.Name) && strings.TrimSpace(typed.Get(f.Name)) != typed.Get("was."+f.Name)
}

// limitsShown is the form of limits: an account as it was when the form was read, and a group of fields for each platform.
type limitsShown struct {
	Account   adminapi.Account
	Platforms []platformFields
}

type platformFields struct {
	Platform string
	Fields   []limitField
}

// limitKinds are the limits, how each is written and read, and where it is in a change.
var limitKinds = []struct {
	name, label, hint string
	of                func(adminapi.Limits) int64
	write             func(int64) string
	read              func(string) (int64, error)
	set               func(*adminapi.LimitsChange, *int64)
}{
	{
		"jobs", "Concurrent jobs", "0: no job starts",
		func(l adminapi.Limits) int64 { return l.Jobs }, decimal, readCount, func(c *adminapi.LimitsChange, n *int64) { c.Jobs = n },
	}, {
		"cpu", "CPUs", "such as 4, 0.5 or 500m",
		func(l adminapi.Limits) int64 { return l.MilliCPU }, fleet.FormatCPU, fleet.ParseCPU, func(c *adminapi.LimitsChange, n *int64) { c.MilliCPU = n },
	}, {
		"memory", "Memory", "such as 512Mi, 64Gi or 1Ti",
		func(l adminapi.Limits) int64 { return l.MemoryMB }, fleet.FormatMemory, fleet.ParseMemory, func(c *adminapi.LimitsChange, n *int64) { c.MemoryMB = n },
	}, {
		"repository", "Jobs per repository", "0: no limit",
		func(l adminapi.Limits) int64 { return l.JobsPerRepository }, decimal, readCount, func(c *adminapi.LimitsChange, n *int64) { c.JobsPerRepository = n },
	},
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func readCount(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, errors.New(strconv.Quote(text) + " is not a number of jobs, such as 20")
	}
	return n, nil
}

func limitsForm(v *visitor, at location, typed url.Values) (formView, error) {
	account, err := readAccount(v, at)
	if err != nil {
		return formView{}, err
	}
	show := limitsShown{Account: account}
	for _, budget := range account.Budgets {
		group := platformFields{Platform: budget.Platform}
		for _, kind := range limitKinds {
			is := kind.write(kind.of(budget.Limits))
			field := limitField{Name: budget.Platform + "." + kind.name, Label: kind.label, Hint: kind.hint, Value: is, Was: is}
			if field.touched(typed) {
				field.Value = typed.Get(field.Name)
			}
			group.Fields = append(group.Fields, field)
		}
		show.Platforms = append(show.Platforms, group)
	}
	return formView{
		Title: "Limits of " + account.Login, Back: accountPage(account.ID), Button: "Change the limits", Shown: show,
		Lead: "Changes apply at once, on every server. A limit below the current usage stops no running job; new jobs start when usage falls below it.",
	}, nil
}

// changeLimits sends what was typed over, and only that: a field that is as it was shown changes nothing.
func changeLimits(v *visitor, at location, typed url.Values) (string, error) {
	version, err := strconv.ParseInt(typed.Get("version"), 10, 64)
	if err != nil || version < 1 {
		return "", &inputError{"The form is incomplete: reload the page."}
	}
	change := adminapi.ChangeLimits{Platforms: map[string]adminapi.LimitsChange{}, Reason: reasonOf(typed)}
	for _, platform := range []fleet.Platform{fleet.Linux, fleet.MacOS} {
		limits, err := typedLimits(string(platform), typed)
		if err != nil {
			return "", err
		}
		if limits != (adminapi.LimitsChange{}) {
			change.Platforms[string(platform)] = limits
		}
	}
	if len(change.Platforms) == 0 {
		return "", &inputError{"Nothing to save: change at least one limit."}
	}
	var account adminapi.Account
	err = v.do(call{method: http.MethodPatch, path: accountPath(at) + "/limits", version: version, body: change}, &account)
	var refused *refusedError
	if errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed {
		return changedConcurrently(v, at, change)
	}
	return accountPage(account.ID) + "#changes", err
}

func typedLimits(platform string, typed url.Values) (adminapi.LimitsChange, error) {
	var limits adminapi.LimitsChange
	for _, kind := range limitKinds {
		field := limitField{Name: platform + "." + kind.name}
		if !field.touched(typed) {
			continue
		}
		n, err := kind.read(strings.TrimSpace(typed.Get(field.Name)))
		if err != nil {
			return limits, &inputError{kind.label + " (" + platform + "): " + err.Error() + "."}
		}
		kind.set(&limits, &n)
	}
	return limits, nil
}

// changedConcurrently distinguishes a form that was sent twice from one with a concurrent change.
func changedConcurrently(v *visitor, at location, change adminapi.ChangeLimits) (string, error) {
	account, err := readAccount(v, at)
	if err != nil {
		return "", err
	}
	for _, budget := range account.Budgets {
		if change.Platforms[budget.Platform].Apply(budget.Limits) != budget.Limits {
			return "", &refusedError{Status: http.StatusPreconditionFailed, Sentence: "The account has changed since this form was shown. " +
				"Nothing was saved. The current values are beside each field: check them and submit again."}
		}
	}
	return accountPage(account.ID) + "#changes", nil
}

func pauseCall(verb string) func(at location) call {
	return func(at location) call { return call{method: http.MethodPost, path: accountPath(at) + ":" + verb} }
}

func pause(verb string) func(v *visitor, at location, typed url.Values) (string, error) {
	return func(v *visitor, at location, typed url.Values) (string, error) {
		what := pauseCall(verb)(at)
		what.body = adminapi.Change{Reason: reasonOf(typed)}
		var account adminapi.Account
		err := v.do(what, &account)
		return accountPage(account.ID) + "#changes", err
	}
}

func suspendForm(v *visitor, at location, _ url.Values) (formView, error) {
	account, err := readAccount(v, at)
	return formView{
		Title: "Suspend " + account.Login, Back: accountPage(account.ID), Button: "Suspend " + account.Login,
		Lead: "New jobs of " + account.Login + " do not start. Running jobs continue; queued jobs wait until the account is resumed.",
	}, err
}

func resumeForm(v *visitor, at location, _ url.Values) (formView, error) {
	account, err := readAccount(v, at)
	lead := "Jobs of " + account.Login + " start again, oldest first."
	if account.SuspendedByGitHub {
		lead = "This removes the administrator's suspension. The installation is also suspended at GitHub: its jobs start once it is resumed there."
	}
	return formView{Title: "Resume " + account.Login, Back: accountPage(account.ID), Button: "Resume " + account.Login, Lead: lead}, err
}
