// Package pfconf edits macOS's /etc/pf.conf, as text, so that it attaches one filter anchor exactly once, and nothing else changes.
//
// Attaching an anchor twice is not harmless. A second `load anchor` declares the anchor's tables again, pf answers "Resource busy" to the
// whole load, and keeps its previous rules: all changes since are silently not in force. So the lines of any earlier version, with marks or
// without, once or many times, are removed before one canonical block is appended (HOST-2).
//
// It has no input or output. Begin with Attach in pfconf.go.
package pfconf
