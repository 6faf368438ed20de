package apicontract

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/bullpen-ci/bullpen/api/openapi"
)

// Checked is the handler, every answer of which fails the test if the description does not have it: its path, its status, each field of its
// body. A request that the handler takes (2xx) must be as described, too; one that it refuses may be anything. It is safe for concurrent use.
func Checked(t testing.TB, next http.Handler) http.Handler {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(openapi.Document())
	if err != nil {
		t.Fatalf("reading the description of the API: %v", err)
	}
	for _, schema := range document.Components.Schemas { // clients are to bear fields that are new; a test is not
		schema.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: new(bool)}
	}
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		t.Fatalf("reading the paths of the API: %v", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked []byte
		if r.Body != nil { // the console asks the handler without a connection
			var err error
			if asked, err = io.ReadAll(r.Body); err != nil {
				t.Errorf("reading a request: %v", err)
			}
			r.Body = io.NopCloser(bytes.NewReader(asked))
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		if strings.HasPrefix(r.URL.Path, "/api/v1/") {
			check(t, router, r, asked, answer)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the client has gone
	})
}

func check(t testing.TB, router routers.Router, r *http.Request, asked []byte, answer *httptest.ResponseRecorder) {
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(asked))
	again.Host = "" // the description is of every server
	if len(asked) > 0 && again.Header.Get("Content-Type") == "" {
		again.Header.Set("Content-Type", "application/json") // the API asks for none
	}
	route, parameters, err := router.FindRoute(again)
	if err != nil {
		if answer.Code != http.StatusNotFound && answer.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s %s was answered %d, and is not in the description: %v", r.Method, r.URL.Path, answer.Code, err)
		}
		return
	}
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	input := &openapi3filter.RequestValidationInput{Request: again, PathParams: parameters, Route: route, Options: options}
	if answer.Code < 300 {
		if err := openapi3filter.ValidateRequest(again.Context(), input); err != nil {
			t.Errorf("%s %s was taken, and is not as described: %v", r.Method, r.URL, err)
		}
	}
	if err := openapi3filter.ValidateResponse(again.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: answer.Code, Header: answer.Header(), Options: options,
		Body: io.NopCloser(bytes.NewReader(answer.Body.Bytes())),
	}); err != nil {
		t.Errorf("%s %s was answered in a way that is not described: %v", r.Method, r.URL, err)
	}
}
