package github

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// FuzzDeliveries: no answer for GitHub's list of deliveries, or for one of them, causes a panic, and what is read of
// it is text that every store takes.
func FuzzDeliveries(f *testing.F) {
	f.Add([]byte(`[{"id":1,"guid":"g","event":"workflow_job","action":"queued","delivered_at":"2026-01-02T03:04:05Z","status_code":200}]`), "v1_7", 200)
	f.Add([]byte(`{"id":1,"guid":"g\u0000","event":"ping","request":{"headers":{"a":"b"},"payload":{"zen":"x"}}}`), "", 200)
	f.Add([]byte(`[null]`), "x y", 304)
	f.Add([]byte(`{"id":1,"request":{"payload":null}}`), "", 500)
	var now func() *http.Response // what is answered
	answer := roundTripper(func(req *http.Request) (*http.Response, error) {
		response := now()
		response.Request = req
		return response, nil
	})
	client, err := New(Options{BaseURL: "https://github.example/api/v3", AppID: 7, PrivateKey: testKey(), Transport: answer})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, body []byte, cursor string, status int) {
		if status < 200 || status > 599 {
			status = 200
		}
		client.own.rates = newRates() // a limit would hold
		now = func() *http.Response {
			return &http.Response{
				StatusCode: status, Body: io.NopCloser(bytes.NewReader(body)),
				Header: http.Header{"Link": {`<https://github.example/x?cursor=` + cursor + `>; rel="next"`}, "Etag": {cursor}},
			}
		}
		stored := func(text string) {
			require.True(t, utf8.ValidString(text) && !strings.Contains(text, "\x00"), "%q", text)
		}
		page, err := client.DeliveryPage(t.Context(), "", cursor)
		if err == nil {
			stored(page.Next)
			stored(page.ETag)
		}
		for _, d := range page.Deliveries {
			stored(d.GUID)
			stored(d.Event)
			stored(d.Action)
		}
		if payload, err := client.Payload(t.Context(), 1); err == nil {
			stored(payload.GUID)
			stored(payload.Event)
		}
	})
}
