package console

import (
	"net/http"
	"net/url"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

func retireCall(at location) call {
	return call{
		method: http.MethodPost,
		path:   adminapi.PathRunners + "/" + url.PathEscape(at.path("namespace")) + "/" + url.PathEscape(at.path("runner")) + "/retire",
	}
}

func poolPage(at location) string {
	return "/ui/pools/" + url.PathEscape(at.path("namespace")) + "/" + url.PathEscape(at.path("pool"))
}

// retireForm asks for nothing: whether the runner is still there and idle is known when it is retired, in one step (EXCL-1).
func retireForm(_ *visitor, at location, _ url.Values) (formView, error) {
	name := at.path("runner")
	return formView{
		Title: "Retire " + name, Back: poolPage(at), Button: "Retire " + name,
		Lead: name + " takes no more jobs and is removed; the pool replaces it. If it has started a job in the meantime, nothing is changed.",
	}, nil
}

func retire(v *visitor, at location, typed url.Values) (string, error) {
	what := retireCall(at)
	what.body = adminapi.Change{Reason: reasonOf(typed)}
	var retired adminapi.RetiredRunner
	err := v.do(what, &retired)
	return poolPage(at) + "#runners", err
}
