package admin

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

func (a *API) listAccounts(w http.ResponseWriter, r request) error {
	q := r.URL.Query()
	most, err := pageSize(q.Get("limit"))
	if err != nil {
		return err
	}
	accounts, next, err := a.opt.Store.Accounts(r.Context(), AccountQuery{
		After: q.Get("after"), Most: most, Deleted: q.Get("deleted") == "true",
	})
	if err != nil {
		return err
	}
	if accounts == nil {
		accounts = []adminapi.Account{}
	}
	a.withDemand(r.Context(), accounts)
	write(w, http.StatusOK, adminapi.AccountList{Accounts: accounts, Next: next})
	return nil
}

func pageSize(text string) (int, error) {
	if text == "" {
		return adminapi.DefaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > adminapi.MaxPage {
		return 0, &InvalidError{"limit must be from 1 to " + strconv.Itoa(adminapi.MaxPage)}
	}
	return n, nil
}

func (a *API) getAccount(w http.ResponseWriter, r request) error {
	account, err := a.opt.Store.Account(r.Context(), r.name)
	if err != nil {
		return err
	}
	a.show(w, r, account)
	return nil
}

func (a *API) show(w http.ResponseWriter, r request, account adminapi.Account) {
	one := []adminapi.Account{account}
	a.withDemand(r.Context(), one)
	account = one[0]
	w.Header().Set("ETag", account.ETag())
	write(w, http.StatusOK, account)
}

// ifMatch reads the version of the account that the client saw; 0: any.
func ifMatch(r request) (version int64, given bool, err error) {
	text := r.Header.Get("If-Match")
	switch text {
	case "":
		return 0, false, nil
	case "*":
		return 0, true, nil
	}
	version, bad := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
	if bad != nil || version < 1 {
		return 0, true, &InvalidError{`If-Match must be the ETag of the account, such as "3", or *`}
	}
	return version, true, nil
}

func checkReason(reason string) error {
	if len(reason) > adminapi.MaxReason || strings.ContainsRune(reason, 0) {
		return &InvalidError{"the reason is too long: at most " + strconv.Itoa(adminapi.MaxReason) + " bytes"}
	}
	return nil
}

func (a *API) changeLimits(w http.ResponseWriter, r request) error {
	version, given, err := ifMatch(r)
	if err != nil {
		return err
	}
	if !given {
		refuse(w, http.StatusPreconditionRequired,
			"If-Match required: send the account's ETag, or * to overwrite any version")
		return nil
	}
	var body adminapi.ChangeLimits
	if err := decode(w, r, &body, false); err != nil {
		return err
	}
	if err := checkReason(body.Reason); err != nil {
		return err
	}
	if len(body.Platforms) == 0 {
		return &InvalidError{"no limits to change: set at least one platform with a limit"}
	}
	account, err := a.opt.Store.ChangeLimits(r.Context(), r.change(body.Reason, version, a.opt.Now()), body.Platforms)
	if err != nil {
		return err
	}
	a.show(w, r, account)
	return nil
}

func (a *API) accountVerb(w http.ResponseWriter, r request) error {
	if r.verb != adminapi.VerbSuspend && r.verb != adminapi.VerbResume {
		refuse(w, http.StatusNotFound, "unknown verb: use POST …/LOGIN:suspend or …/LOGIN:resume")
		return nil
	}
	version, _, err := ifMatch(r)
	if err != nil {
		return err
	}
	var body adminapi.Change
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	if err := checkReason(body.Reason); err != nil {
		return err
	}
	account, err := a.opt.Store.Pause(r.Context(), r.change(body.Reason, version, a.opt.Now()), r.verb == adminapi.VerbSuspend)
	if err != nil {
		return err
	}
	a.show(w, r, account)
	return nil
}

func (a *API) deleteAccount(w http.ResponseWriter, r request) error {
	version, _, err := ifMatch(r)
	if err != nil {
		return err
	}
	var body adminapi.Change
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	if err := checkReason(body.Reason); err != nil {
		return err
	}
	purge := r.URL.Query().Get("purge") == "true"
	if err := a.opt.Store.DeleteAccount(r.Context(), r.change(body.Reason, version, a.opt.Now()), purge); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
