package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/lib/logtail"
)

// logView is the last log lines of a job's runner. A job's output may be confidential, so it has a right of its own, and a page that is
// never live.
type logView struct {
	Job  adminapi.Job
	Back string
	Log  *adminapi.RunnerLog
	// Without says why there is none to see.
	Without string
}

func loadLog(_ *Console, v *visitor, at location) (string, any, error) {
	id := url.PathEscape(at.path("job"))
	var view logView
	if err := v.get(adminapi.PathJobs+"/"+id, &view.Job); err != nil {
		return "", nil, err
	}
	title := "Last lines of job " + strconv.FormatInt(view.Job.ID, 10)
	view.Back = "/ui/jobs/" + id
	if view.Job.Pod == "" || view.Job.PodNamespace == "" {
		view.Without = "This job has no known runner, so there is no log."
		return title, view, nil
	}
	var log adminapi.RunnerLog
	err := v.get(adminapi.PathRunners+"/"+url.PathEscape(view.Job.PodNamespace)+"/"+url.PathEscape(view.Job.Pod)+"/log", &log)
	var refused *refusedError
	switch {
	case err == nil:
		log.Tail, _ = logtail.Of([]byte(log.Tail)) // whatever wrote it into the ledger: no terminal escapes are copied from here
		view.Log = &log
	case errors.As(err, &refused) && (refused.Status == http.StatusForbidden || refused.Status == http.StatusNotFound):
		view.Without = refused.Sentence
	default:
		return "", nil, err
	}
	return title, view, nil
}
