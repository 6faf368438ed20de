package dispatch

// HeldPolls is how many polls wait for work at this replica: what capacity planning and tests look at.
func (d *Dispatcher) HeldPolls() int {
	d.mu.Lock()
	matchers := make([]*matcher, 0, len(d.matchers))
	for _, m := range d.matchers {
		matchers = append(matchers, m)
	}
	d.mu.Unlock()
	held := 0
	for _, m := range matchers {
		m.mu.Lock()
		held += m.waiting.Len()
		m.mu.Unlock()
	}
	return held
}
