package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// shown is what every template is given.
type shown struct {
	Title string
	Tab   string // the document's title; empty: Title
	Nav   string // the current entry of the menu
	Bare  bool   // no user is logged in: there is no menu
	Who   string // the user's name
	Live  string // the URL that is kept up to date; empty: none
	// Onward is where the browser goes at once; empty: nowhere.
	Onward string
	Data   any

	Version string        // of the server, on pages of users who are logged in
	Fresh   time.Duration // for how long data is called live
}

// templates are one set for each page: the layout, and what the page puts into it. They are parsed once, and only by who shows a page: each start of the
// program would pay for it. One that cannot be parsed is a mistake that every test finds.
var templates = sync.OnceValue(func() map[string]*template.Template {
	sets := map[string]*template.Template{}
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err) // a bad pattern
	}
	for _, name := range names {
		base := path.Base(name)
		if base == "layout.html" || base == "parts.html" || base == "charts.html" {
			continue
		}
		sets[base] = template.Must(template.New("layout.html").Funcs(functions).Funcs(chartFunctions).ParseFS(templateFiles,
			"templates/layout.html", "templates/parts.html", "templates/charts.html", name))
	}
	return sets
})

var functions = template.FuncMap{
	"stamp": func(t time.Time) template.HTML { return stamp(t, "ago", 0) },
	"since": func(t time.Time) template.HTML { return stamp(t, "for", 0) },
	"wait":  func(t time.Time) template.HTML { return stamp(t, "for", longWait) },
	"exact": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") },
	"whole": func(t time.Time) string { return t.UTC().Format(time.DateTime) },
	"deref": func(t *time.Time) time.Time {
		if t == nil {
			return time.Time{}
		}
		return *t
	},
	"entry": func(on shown, nav, to, text string) map[string]any {
		return map[string]any{"To": to, "Text": text, "Current": on.Nav == nav}
	},
	"meter":   func(used, most int64, unit string) meterView { return newMeter(used, most, unit) },
	"between": func(from, to time.Time) string { return took(to.Sub(from), true) },
	"asset":   asset,
	"count":   count,
	"cores":   func(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) },
	"gib":     func(mb int64) string { return strconv.FormatFloat(float64(mb)/1024, 'f', -1, 64) + " GiB" },
	"join":    func(list []string) string { return strings.Join(list, ", ") },
	"took": func(seconds float64, whole bool) string {
		return took(time.Duration(seconds*float64(time.Second)), whole)
	},
	"phase":  func(name string) string { return fleet.Phase(name).Words() },
	"step":   func(name string) string { return fleet.Step(name).Words() },
	"slug":   func(name any) string { return strings.ReplaceAll(words(name), " ", "-") },
	"words":  words,
	"exit":   func(code *int32) string { return adminapi.ExitCode(*code) },
	"hours":  func(seconds float64) string { return strconv.FormatFloat(seconds/3600, 'f', 2, 64) },
	"prose":  prose,
	"lower":  strings.ToLower,
	"action": words,
}

// meterView is what is used of a limit.
type meterView struct {
	Value, Max, High int64
	Text, Label      string
}

func newMeter(used, most int64, unit string) meterView {
	scale, suffix := 1.0, ""
	switch unit {
	case "cpu":
		scale, suffix = 1000, " vCPU"
	case "memory":
		scale, suffix = 1024, " GiB"
	}
	number := func(n int64) string { return strconv.FormatFloat(float64(n)/scale, 'f', -1, 64) }
	text := number(used) + " of " + number(most) + suffix
	return meterView{Value: used, Max: max(most, 1), High: most * 9 / 10, Text: text, Label: text + " " + unit}
}

// longWait is how long a job may be queued before its wait is shown as a problem.
const longWait = 5 * time.Minute

// stamp is a moment by the clock; the page's script shows how long ago that is, so that what the server says does not change by itself. The script marks
// what is longer ago than late, unless that is 0.
func stamp(t time.Time, style string, late time.Duration) template.HTML {
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	t = t.UTC()
	mark := ""
	if late > 0 {
		mark = fmt.Sprintf(` data-late="%d"`, late/time.Second)
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-style="%s"%s>%s UTC</time>`, //nolint:gosec // numbers alone
		t.Format(time.RFC3339Nano), style, mark, t.Format(time.DateTime)))
}

// words make a name that programs use one for people.
func words(name any) string { return strings.ReplaceAll(fmt.Sprint(name), "_", " ") }

// count shows numbers with thin separators, as people read them.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// took shows milliseconds of what is short, unless it is known to the second only, and two units of what is long.
func took(d time.Duration, whole bool) string {
	if whole && d < time.Second {
		return "<1s"
	}
	if whole {
		d = d.Round(time.Second)
	}
	switch {
	case d < 10*time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh %02dm", d/time.Hour, d%time.Hour/time.Minute)
}

// prose shows what is between backquotes as code.
func prose(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			b.WriteString("<code>" + template.HTMLEscapeString(part) + "</code>")
		} else {
			b.WriteString(template.HTMLEscapeString(part))
		}
	}
	return template.HTML(b.String()) //nolint:gosec // each part is escaped
}

// render writes a page whole or not at all.
func (c *Console) render(w http.ResponseWriter, status int, name string, with shown) {
	var b bytes.Buffer
	with.Fresh = c.opt.Fresh
	if !with.Bare {
		with.Version = c.opt.Version
	}
	if err := templates()[name].ExecuteTemplate(&b, "layout.html", with); err != nil {
		c.opt.Log.Error("rendering a page of the console", "template", name, "error", err)
		http.Error(w, "The console could not render this page. See the server's log.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client has gone
}

// part renders what of a page is kept live.
func part(name string, with shown) ([]byte, error) {
	var b bytes.Buffer
	err := templates()[name].ExecuteTemplate(&b, "content", with)
	return b.Bytes(), err
}

// assets are the addresses of static files, which change with their content: browsers may keep them for ever.
var assets = sync.OnceValue(func() map[string]string {
	known := map[string]string{}
	files, err := staticFiles.ReadDir("static")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, file := range files {
		content, err := staticFiles.ReadFile("static/" + file.Name())
		if err != nil {
			panic(err) // it is embedded
		}
		sum := sha256.Sum256(content)
		known[file.Name()] = "/ui/static/" + file.Name() + "?v=" + hex.EncodeToString(sum[:6])
	}
	return known
})

func asset(name string) (string, error) {
	address, ok := assets()[name]
	if !ok {
		return "", fmt.Errorf("static file %s not found", name)
	}
	return address, nil
}

func serveStatic(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	address, ok := assets()[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.URL.RequestURI() == address {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeFileFS(w, r, staticFiles, "static/"+name)
}
