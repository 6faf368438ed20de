package standin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds every JSON body read from outside.
const maxBody = 16 << 20

// apiError is an error answer of the REST and admin APIs.
type apiError struct {
	status           int
	Message          string   `json:"message"`
	Errors           []string `json:"errors,omitempty"`
	DocumentationURL string   `json:"documentation_url,omitempty"`
	Status           string   `json:"status,omitempty"`
	location         string   // of a redirection
}

func (e *apiError) Error() string { return e.Message }

func failf(status int, format string, args ...any) *apiError {
	return &apiError{status: status, Message: fmt.Sprintf(format, args...)}
}

func notFound() *apiError {
	return &apiError{status: http.StatusNotFound, Message: "Not Found", DocumentationURL: docsRoot + "/rest"}
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "encoding the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have disconnected, and then nothing is left to report to
}

func writeError(w http.ResponseWriter, err error) {
	var e *apiError
	if !errors.As(err, &e) {
		e = failf(http.StatusInternalServerError, "%v", err)
	}
	e.Status = strconv.Itoa(e.status)
	if e.location != "" {
		w.Header().Set("Location", e.location)
	}
	writeJSON(w, e.status, e)
}

// readJSON decodes a body. Any error becomes one sentence and a 400.
func readJSON(r *http.Request, into any) *apiError {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return failf(http.StatusBadRequest, "The body could not be read: send it again.")
	case len(data) > maxBody:
		return failf(http.StatusRequestEntityTooLarge, "The body is larger than %d MB.", maxBody>>20)
	case len(data) == 0:
		return failf(http.StatusBadRequest, "The body is empty: send a JSON object.")
	}
	if err := json.Unmarshal(data, into); err != nil {
		return failf(http.StatusBadRequest, "Problems parsing JSON: %v.", err)
	}
	return nil
}

func pathID(r *http.Request, name string) (int64, *apiError) {
	id, err := strconv.ParseInt(r.PathValue(name), 10, 64)
	if err != nil || id <= 0 {
		return 0, notFound()
	}
	return id, nil
}

// page cuts a list as GitHub does and links to its neighbours.
func page[T any](w http.ResponseWriter, r *http.Request, base string, items []T) []T {
	base += strings.SplitN(r.RequestURI, "?", 2)[0]
	query := r.URL.Query()
	size := clampInt(query.Get("per_page"), 30, 1, 100)
	number := clampInt(query.Get("page"), 1, 1, 1<<30)
	last := max(1, (len(items)+size-1)/size)
	var links []string
	link := func(n int, rel string) {
		query.Set("page", strconv.Itoa(n))
		links = append(links, linkHeader(base, query, rel))
	}
	if number > 1 {
		link(number-1, "prev")
		link(1, "first")
	}
	if number < last {
		link(number+1, "next")
		link(last, "last")
	}
	if len(links) > 0 {
		w.Header().Set("Link", strings.Join(links, ", "))
	}
	from := min((number-1)*size, len(items))
	return items[from:min(from+size, len(items))]
}

func linkHeader(address string, query url.Values, rel string) string {
	return fmt.Sprintf("<%s?%s>; rel=%q", address, query.Encode(), rel)
}

func clampInt(text string, fallback, low, high int) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return fallback
	}
	return max(low, min(high, n))
}

// stamp writes a time as GitHub does; a zero time is null.
func stamp(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := t.UTC().Format(time.RFC3339)
	return &text
}
