//go:build unix

package process

// Owner is the identity of the state directory: 32 hex digits that were drawn when it was made, and never change.
func (s *Sandbox) Owner() string { return s.owner }
