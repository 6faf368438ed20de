// Package console is the console: pages under /ui/ for people who run the fleet, kept up to date by server-sent events.
//
// It has no rights and no data of its own. Each page is made from responses of the admin API, called in this process with the visitor's own
// token; so the console shows and does only what its user could request there (NET-5), and changes are audited as the user's. Templates,
// style and scripts are embedded; nothing is built at run time, and nothing is loaded from elsewhere.
//
// Begin with console.go; pages.go lists the pages, actions.go the forms, stream.go keeps pages live, session.go identifies users.
package console
