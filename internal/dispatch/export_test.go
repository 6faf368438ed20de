package dispatch

// Matchers is how many pools have a matcher at this replica.
func (d *Dispatcher) Matchers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.matchers)
}
