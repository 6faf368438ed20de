package doctor

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/github"
)

// GitHub is what GitHub says of the App.
type GitHub struct {
	AppID         int64
	KeyBroken     string // what is wrong with the key's file; empty: it is a key
	KeyRefused    bool   // GitHub does not know it as one of the App's
	Clock         *Clock
	App           *github.AppSettings
	Hook          *github.HookConfig
	Deliveries    []github.Delivery // newest first
	Installations []github.Installation
	Push          bool // webhooks are sent to the server, which does not only read GitHub's list of them
}

// permission is one that the fleet needs, and what its absence means.
type permission struct {
	github.AppPermission
	why      string
	severity func(g GitHub) Severity
}

func always(GitHub) Severity { return SeverityError }

// whereRepositories: repositories' own runners are registered where an account is a user, and where a pool says so.
func whereRepositories(g GitHub) Severity {
	if slices.ContainsFunc(g.Installations, func(i github.Installation) bool { return i.Account.Type == "User" }) {
		return SeverityError
	}
	return SeverityWarning
}

// permissions are those of github.AppPermissions, without the one that GitHub adds to every App.
func permissions() []permission {
	var all []permission
	for _, needed := range github.AppPermissions() {
		p := permission{AppPermission: needed, severity: always}
		switch needed.Name {
		case github.PermissionMetadata:
			continue
		case github.PermissionOrganizationRunners:
			p.why = "no runner can be registered for an organization"
		case github.PermissionAdministration:
			p.why, p.severity = "no runner can be registered for a repository, as users' repositories need", whereRepositories
		case github.PermissionActions:
			p.why = "GitHub cannot be asked for the state of a job, so a lost webhook is not recovered"
		}
		all = append(all, p)
	}
	return all
}

// atLeast compares levels of a permission.
func atLeast(has, needs string) bool {
	levels := []string{"", "read", "write", "admin"}
	return slices.Index(levels, has) >= slices.Index(levels, needs)
}

func examineGitHub(r *Report, g GitHub) {
	app := strconv.FormatInt(g.AppID, 10)
	switch {
	case g.KeyBroken != "":
		r.found(Finding{
			Code: "key-broken", Severity: SeverityError, Subject: "App " + app, Sentence: "Cannot authenticate as the App: " + g.KeyBroken + ".",
			Remedy: "Generate a private key on the App's settings page, and store it: `kubectl -n bullpen-system create secret generic " +
				"bullpen-github --from-file=private-key.pem=FILE --dry-run=client -o yaml | kubectl apply -f -` (keep the webhook secret in it).",
		})
	case g.KeyRefused:
		r.found(Finding{
			Code: "key-refused", Severity: SeverityError, Subject: "App " + app,
			Sentence: "GitHub does not accept the private key of App " + app + ".",
			Remedy: "Compare the App's id and its keys' fingerprints on its settings page (`openssl rsa -in FILE -pubout -outform DER | openssl " +
				"sha256 -binary | base64` prints that of a file), and generate a new key there if none matches. A wrong clock has the same effect.",
		})
	}
	if g.Clock != nil {
		examineClock(r, "GitHub", *g.Clock)
	}
	if g.App != nil {
		examineRights(r, g, *g.App)
	}
	if g.Hook != nil && g.Push {
		examineHook(r, *g.Hook)
	}
	if g.Push {
		examineDeliveries(r, g)
	}
}

func examineRights(r *Report, g GitHub, app github.AppSettings) {
	for _, p := range permissions() {
		if !atLeast(app.Rights.Permissions[p.Name], p.Level) {
			r.found(Finding{
				Code: "app-permission", Severity: p.severity(g), Subject: p.Name,
				Sentence: "The App has permission " + p.Name + ": " + cmp.Or(app.Rights.Permissions[p.Name], "none") + ", and needs " + p.Level + ": " + p.why + ".",
				Remedy: "On the App's settings page, under Permissions & events, set " + p.Title + " to " + p.Level +
					". Each account that has it installed must then accept the change.",
			})
			continue
		}
		for _, i := range g.Installations {
			if atLeast(i.Rights.Permissions[p.Name], p.Level) || !concerns(p, i) {
				continue
			}
			r.found(Finding{
				Code: "permission-not-accepted", Severity: SeverityError, Subject: i.Account.Login,
				Sentence: i.Account.Login + " has not accepted the App's permission " + p.Name + " (" + p.Level + "): " + p.why + ".",
				Remedy:   "An owner of " + i.Account.Login + " opens Settings → GitHub Apps → Configure, and accepts the new permissions.",
			})
		}
	}
	if !slices.Contains(app.Rights.Events, github.EventWorkflowJob) {
		r.found(Finding{
			Code: "event-not-subscribed", Severity: SeverityError, Subject: github.EventWorkflowJob,
			Sentence: "The App receives no job events: it does not subscribe to workflow_job.",
			Remedy: "On the App's settings page, under Permissions & events → Subscribe to events, tick Workflow job. " +
				"Until then a sweep finds queued jobs, minutes late.",
		})
	}
	if len(g.Installations) == 0 && app.ID != 0 {
		r.found(Finding{
			Code: "not-installed", Severity: SeverityWarning, Sentence: "The App is not installed in any account, so there are no jobs.",
			Remedy: "Install it: App's settings page → Install App. `bullpen accounts list` shows the account a moment later.",
		})
	}
}

// concerns: what belongs to organizations is nothing that a user could accept, and an enterprise, which has no login, has neither.
func concerns(p permission, i github.Installation) bool {
	if i.Account.Login == "" {
		return false
	}
	isUser := i.Account.Type == "User"
	return p.Name == github.PermissionActions || isUser == (p.Name == github.PermissionAdministration)
}

func examineHook(r *Report, hook github.HookConfig) {
	const page = "On the App's settings page, under Webhook, "
	switch {
	case hook.URL == "":
		r.found(Finding{
			Code: "webhook-missing", Severity: SeverityError, Sentence: "The App sends no webhooks: it has no webhook URL.",
			Remedy: page + "select Active and enter the server's URL, https://HOST/webhooks/github; or run the server with --webhooks=poll " +
				"if GitHub cannot reach it.",
		})
		return
	case !strings.HasSuffix(strings.TrimRight(hook.URL, "/"), "/webhooks/github"):
		r.found(Finding{
			Code: "webhook-url", Severity: SeverityWarning, Subject: hook.URL,
			Sentence: "The App's webhooks go to " + hook.URL + ", and the server expects them at …/webhooks/github.",
			Remedy:   page + "enter https://HOST/webhooks/github, unless your proxy changes the path.",
		})
	}
	if !hook.HasSecret {
		r.found(Finding{
			Code: "webhook-unsigned", Severity: SeverityError, Subject: hook.URL,
			Sentence: "The App's webhooks are not signed, and the server accepts signed ones only.",
			Remedy:   page + "enter the server's webhook secret (--webhook-secret-file).",
		})
	}
}

// examineDeliveries judges the newest attempts: failures before a delivery that arrived are fixed.
func examineDeliveries(r *Report, g GitHub) {
	if len(g.Deliveries) == 0 {
		if g.App != nil {
			r.Unchecked = append(r.Unchecked, Unchecked{
				What: "whether webhooks arrive", Why: "GitHub has sent none in the last three days",
				Remedy: "Run a workflow with a pool's label, and check again.",
			})
		}
		return
	}
	failed := slices.IndexFunc(g.Deliveries, func(d github.Delivery) bool { return d.StatusCode >= 200 && d.StatusCode < 300 })
	if failed == 0 {
		return
	}
	if failed < 0 {
		failed = len(g.Deliveries)
	}
	url := "the webhook URL"
	if g.Hook != nil && g.Hook.URL != "" {
		url = g.Hook.URL
	}
	f := Finding{Severity: SeverityError, Subject: url}
	last := "The latest " + strconv.Itoa(failed) + " webhooks failed: "
	switch status := g.Deliveries[0].StatusCode; status {
	case http.StatusUnauthorized, http.StatusForbidden:
		f.Code = "webhook-secret"
		f.Sentence = last + "the server responds " + strconv.Itoa(status) + ", as for a signature with another secret."
		f.Remedy = "Use the same secret on the App's settings page and in the server's Secret: `kubectl -n bullpen-system get secret " +
			"bullpen-github -o jsonpath='{.data.webhook-secret}' | base64 -d` prints the server's."
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusMovedPermanently, http.StatusFound, http.StatusPermanentRedirect:
		f.Code = "webhook-url"
		f.Sentence = last + url + " responds " + strconv.Itoa(status) + ", so the host or the path is wrong."
		f.Remedy = "Set the webhook URL on the App's settings page to https://HOST/webhooks/github; `curl -i https://HOST/healthz` shows whether the server is at HOST."
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, 0:
		f.Code = "webhook-unreachable"
		f.Sentence = last + "GitHub cannot reach " + url + ", or the server behind it is down."
		f.Remedy = "Check that the server runs (`kubectl -n bullpen-system get pods`) and that GitHub can reach it (`kubectl -n bullpen-system get ingress`); " +
			"if it cannot, run the server with --webhooks=poll."
	default:
		f.Code = "webhook-failing"
		f.Sentence = last + url + " responds " + strconv.Itoa(status) + "."
		f.Remedy = "See the server's log: `kubectl -n bullpen-system logs deploy/bullpen-server`."
	}
	r.found(f)
}
