// Package console is the console: pages under /ui/ for people who run the fleet, kept up to date by server-sent events.
//
// It has no rights and no data of its own. Each page is made from what the operators' API answers, in this process, to the visitor's own
// token; so nobody sees or does here what they could not ask for there (NET-5), and what is done is audited as theirs. Templates, style
// and scripts are embedded; nothing is built at run time, and nothing is loaded from elsewhere.
//
// Begin with console.go; pages.go lists the pages, actions.go what can be done, stream.go keeps pages live, session.go is who somebody is.
package console
