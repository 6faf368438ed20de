// Package http is the HTTP side of Bullpen: it authenticates, decodes, calls dispatch and encodes. The public
// handler takes GitHub's webhooks; the internal one serves runner pods and the controller and belongs behind a
// network policy that lets only idle runners and the controller in.
//
// It decides nothing about jobs or runners. Begin with server.go.
package http
