package githubapp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// browser does what a user's does: it keeps cookies, follows redirects, and submits the form of a page.
type browser struct {
	t      *testing.T
	client *http.Client
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &browser{t: t, client: &http.Client{Timeout: await.Limit, Jar: jar}}
}

// page is what the browser shows.
type page struct {
	status   int
	at       *url.URL
	header   http.Header
	text     string
	action   string // of its form
	fields   url.Values
	location string // where a redirect that was not followed leads
}

func (b *browser) do(request *http.Request) page {
	b.t.Helper()
	response, err := b.client.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	shown := page{
		status: response.StatusCode, at: response.Request.URL, header: response.Header, text: string(raw), fields: url.Values{}, location: response.Header.Get("Location"),
	}
	document, err := html.Parse(bytes.NewReader(raw))
	require.NoError(b.t, err)
	for node := range document.Descendants() {
		switch node.Data {
		case "form":
			shown.action = attribute(node, "action")
		case "input":
			shown.fields.Set(attribute(node, "name"), attribute(node, "value"))
		}
	}
	return shown
}

func attribute(node *html.Node, name string) string {
	for _, one := range node.Attr {
		if one.Key == name {
			return one.Val
		}
	}
	return ""
}

func (b *browser) open(at string) page {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, at, nil)
	require.NoError(b.t, err)
	return b.do(request)
}

// submit sends a page's form, with other values for some of its fields.
func (b *browser) submit(from page, fields ...string) page {
	b.t.Helper()
	require.NotEmpty(b.t, from.action, "there is no form: %s", from.text)
	for i := 0; i < len(fields); i += 2 {
		from.fields.Set(fields[i], fields[i+1])
	}
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, from.action, strings.NewReader(from.fields.Encode()))
	require.NoError(b.t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(request)
}

// staying does not follow the redirect of what it does.
func (b *browser) staying(do func() page) page {
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	defer func() { b.client.CheckRedirect = nil }()
	return do()
}

// outcome is how Run ended.
type outcome struct {
	result Result
	err    error
}

// running is a Run that waits for the user.
type running struct {
	url  string
	out  *bytes.Buffer // to be read when it has ended
	done chan outcome
}

func begin(ctx context.Context, t *testing.T, o Options) running {
	t.Helper()
	urls := make(chan string, 1)
	r := running{out: &bytes.Buffer{}, done: make(chan outcome, 1)}
	o.Out = r.out
	o.Open = func(_ context.Context, at string) error {
		urls <- at
		return nil
	}
	go func() {
		result, err := Run(ctx, o)
		r.done <- outcome{result, err}
	}()
	select {
	case r.url = <-urls:
	case early := <-r.done:
		require.NoError(t, early.err, "it ended before it asked the user")
	case <-time.After(await.Limit):
		require.Fail(t, "no URL was opened")
	}
	return r
}

func (r running) end(t *testing.T) (Result, error) {
	t.Helper()
	ended := await.Receive(t, r.done, "the end of the registration")
	return ended.result, ended.err
}

// gitHub is a stand-in with the organization acme, and the options to register an App there.
func gitHub(t *testing.T, change func(*standin.Options)) (*standin.Local, Options) {
	t.Helper()
	opts := standin.Options{Installations: []standin.Installation{{ID: 11, Account: "acme"}, {ID: 12, Account: "octo", Type: "User"}}, RunnerKeys: 1}
	if change != nil {
		change(&opts)
	}
	in, err := standin.Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(in.Close)
	return in, Options{App: App{Organization: "acme", WebhookURL: "https://bullpen.example.com"}, API: in.URL + "/api/v3", RequestTimeout: await.Limit}
}
