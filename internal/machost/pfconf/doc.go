// Package pfconf edits macOS's /etc/pf.conf, as text, so that it attaches one filter anchor exactly once, and nothing else changes.
//
// Attaching an anchor twice is not harmless. A second `load anchor` declares the anchor's tables again, pf answers "Resource busy" to
// the whole load, and goes on with the rules that it had: everything that was changed since is silently not in force. So
// whatever earlier versions left in the file, with marks or without, once or many times, is taken out before one
// canonical block is put at the end (HOST-2).
//
// It does no input and no output. Begin with Attach in pfconf.go.
package pfconf
