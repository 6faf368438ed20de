package standin

import (
	"net/http"
	"strconv"
	"time"
)

type deliveryJSON struct {
	ID             int64        `json:"id"`
	GUID           string       `json:"guid"`
	DeliveredAt    string       `json:"delivered_at"`
	Redelivery     bool         `json:"redelivery"`
	Duration       float64      `json:"duration"`
	Status         string       `json:"status"`
	StatusCode     int          `json:"status_code"`
	Event          string       `json:"event"`
	Action         *string      `json:"action"`
	InstallationID *int64       `json:"installation_id"`
	RepositoryID   *int64       `json:"repository_id"`
	ThrottledAt    *string      `json:"throttled_at"`
	URL            string       `json:"url,omitempty"`
	Request        *hookMessage `json:"request,omitempty"`
	Response       *hookMessage `json:"response,omitempty"`
}

type hookMessage struct {
	Headers map[string]string `json:"headers"`
	Payload any               `json:"payload"`
}

func (d *delivery) json() deliveryJSON {
	out := deliveryJSON{
		ID: d.ID, GUID: d.GUID, DeliveredAt: d.DeliveredAt.UTC().Format(time.RFC3339), Redelivery: d.Redelivery,
		Duration: d.Duration.Seconds(), Status: d.Status, StatusCode: d.StatusCode, Event: d.Event, Action: orNull(d.Action),
	}
	if d.InstallationID != 0 {
		out.InstallationID = &d.InstallationID
	}
	if d.RepositoryID != 0 {
		out.RepositoryID = &d.RepositoryID
	}
	return out
}

// getHookConfig shows where webhooks go. A secret is never shown, only that there is one.
func (s *Server) getHookConfig(w http.ResponseWriter, _ *http.Request, _ caller) error {
	s.hooks.mu.Lock()
	config := map[string]string{"content_type": "json", "insecure_ssl": "0", "url": s.hooks.url}
	if s.hooks.secret != "" {
		config["secret"] = "********"
	}
	s.hooks.mu.Unlock()
	writeJSON(w, http.StatusOK, config)
	return nil
}

// listDeliveries pages by cursor, newest first, as GitHub does.
func (s *Server) listDeliveries(w http.ResponseWriter, r *http.Request, _ caller) error {
	query := r.URL.Query()
	size := clampInt(query.Get("per_page"), 30, 1, 100)
	cursor := int64(clampInt(query.Get("cursor"), 0, 0, 1<<62))
	var keep func(*delivery) bool
	switch query.Get("status") {
	case "success":
		keep = (*delivery).succeeded
	case "failure":
		keep = func(d *delivery) bool { return !d.succeeded() }
	}
	found := s.hooks.snapshot(cursor, size+1, keep)
	if len(found) > size {
		found = found[:size]
		query.Set("cursor", strconv.FormatInt(found[size-1].ID, 10))
		w.Header().Set("Link", linkHeader(s.opts.URL+r.URL.Path, query, "next"))
	}
	out := make([]deliveryJSON, 0, len(found))
	for i := range found {
		out = append(out, found[i].json())
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) getDelivery(w http.ResponseWriter, r *http.Request, _ caller) error {
	id, bad := pathID(r, "id")
	if bad != nil {
		return bad
	}
	d, ok := s.hooks.get(id)
	if !ok {
		return notFound()
	}
	out := d.json()
	out.Request = &hookMessage{Headers: d.Headers, Payload: d.Payload}
	out.Response = &hookMessage{Headers: d.AnswerHead}
	if d.Answer != "" {
		out.Response.Payload = d.Answer // text, whatever it holds
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) redeliver(w http.ResponseWriter, r *http.Request, _ caller) error {
	id, bad := pathID(r, "id")
	if bad != nil {
		return bad
	}
	if _, ok := s.hooks.again(id); !ok {
		return notFound()
	}
	writeJSON(w, http.StatusAccepted, struct{}{})
	return nil
}
