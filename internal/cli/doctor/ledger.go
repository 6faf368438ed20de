package doctor

import (
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/internal/server/ledger"
)

// Ledger is what was seen of the database.
type Ledger struct {
	Unreachable string // why; empty: it was reached
	Schema      ledger.SchemaState
	Deaf        error // why notifications do not arrive; nil: they do
	Clock       Clock
	// Uninstalled are accounts whose webhooks arrive and where the App is not installed.
	Uninstalled []ledger.UninstalledOwner
}

func examineLedger(r *Report, l Ledger) {
	if l.Unreachable != "" {
		r.found(Finding{
			Code: "database-unreachable", Severity: SeverityError, Subject: "database", Sentence: "Cannot use the database: " + l.Unreachable + ".",
			Remedy: "Check that it runs and that the URL is right: `psql \"$(cat FILE)\" -c 'select 1'` with the file of --database-url-file. Until then " +
				"running jobs continue, and no idle runner is removed.",
		})
		return
	}
	has, needs := strconv.FormatInt(l.Schema.Has, 10), strconv.FormatInt(l.Schema.Needs, 10)
	switch {
	case l.Schema.Has < l.Schema.Needs:
		r.found(Finding{
			Code: "schema-behind", Severity: SeverityError, Subject: "database",
			Sentence: "The database's schema is at " + has + ", and this version of Bullpen needs " + needs + ".",
			Remedy:   "Run `bullpen server migrate`; a server also migrates when it starts.",
		})
	case l.Schema.Has > l.Schema.Needs:
		r.found(Finding{
			Code: "schema-ahead", Severity: SeverityError, Subject: "database",
			Sentence: "The database's schema is at " + has + ", and this version of Bullpen knows it up to " + needs + ": a newer one has migrated it.",
			Remedy:   "Use the newer version everywhere, also for this command: `helm upgrade`, or the image of the running servers.",
		})
	}
	if l.Deaf != nil {
		r.found(Finding{
			Code: "notifications-lost", Severity: SeverityError, Subject: "database", Sentence: "Notifications from the database do not arrive: " + l.Deaf.Error() + ".",
			Remedy: "A server does not start without them. If the servers have BULLPEN_LISTEN_DATABASE_URL, set it for this command too.",
		})
	}
	if l.Schema.Route == ledger.RouteUnprepared {
		r.found(Finding{
			Code: "statements-not-prepared", Severity: SeverityWarning, Subject: "database",
			Sentence: "The connection pooler in front of the database does not track prepared statements, so PostgreSQL plans every statement again.",
			Remedy:   "Use PgBouncer 1.21 or newer and set max_prepared_statements = 300 there.",
		})
	}
	for _, owner := range l.Uninstalled {
		r.found(Finding{
			Code: "owner-not-installed", Severity: SeverityWarning, Subject: owner.Login,
			Sentence: "Webhooks arrive from " + owner.Repository + " (latest " + owner.SeenAt.UTC().Format(time.RFC3339) +
				"), and the App is not installed at " + owner.Login + ": its jobs are ignored.",
			Remedy: "Install the App there: App's settings page → Install App → " + owner.Login + ". If Bullpen should not run its jobs, delete " +
				"the webhook in the settings of " + owner.Login + " or of the repository.",
		})
	}
	examineClock(r, "the database", l.Clock)
}
