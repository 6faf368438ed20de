package githubapp

import "html/template"

// permissionRow is one line of the start page.
type permissionRow struct{ Title, Level, Use string }

// startData is what the start page shows before the browser leaves for GitHub.
type startData struct {
	Site, Action, Manifest string
	Owner, Name            string
	Webhook                string // empty: the server polls
	Public                 bool
	Permissions            []permissionRow
	Events                 []string
}

// endData is what the browser shows when it comes back.
type endData struct {
	Title, Message string
	Link, LinkText string
}

const head = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
`

var startPage = template.Must(template.New("start").Parse(head + `<title>Create the GitHub App</title></head>
<body>
<main>
<h1>Create the GitHub App</h1>
<p>GitHub creates the App with these settings after you confirm them at {{.Site}}. You can change its name there.</p>
<ul>
<li>Owner: {{if .Owner}}{{.Owner}}{{else}}your own account{{end}}</li>
{{if .Name}}<li>Name: {{.Name}}</li>
{{end}}<li>Webhooks: {{if .Webhook}}{{.Webhook}}{{else}}none arrive; the server polls GitHub{{end}}</li>
<li>{{if .Public}}Any account can install it{{else}}Only its owner can install it{{end}}</li>
</ul>
<table>
<thead><tr><th scope="col">Permission</th><th scope="col">Access</th><th scope="col">Used to</th></tr></thead>
<tbody>
{{range .Permissions}}<tr><td>{{.Title}}</td><td>{{.Level}}</td><td>{{.Use}}</td></tr>
{{end}}</tbody>
</table>
<p>Events: {{range $i, $event := .Events}}{{if $i}}, {{end}}{{$event}}{{end}}</p>
<form method="post" action="{{.Action}}"><input type="hidden" name="manifest" value="{{.Manifest}}"><button type="submit">Continue to GitHub</button></form>
</main>
</body>
</html>
`))

var endPage = template.Must(template.New("end").Parse(head + `<title>{{.Title}}</title></head>
<body>
<main>
<h1>{{.Title}}</h1>
<p>{{.Message}}</p>
{{if .Link}}<p><a href="{{.Link}}">{{.LinkText}}</a></p>
{{end}}</main>
</body>
</html>
`))
