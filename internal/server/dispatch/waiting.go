package dispatch

// WaitingPolls counts the polls that wait for work at this replica, for capacity planning and tests.
func (d *Dispatcher) WaitingPolls() int {
	d.mu.Lock()
	matchers := make([]*matcher, 0, len(d.matchers))
	for _, m := range d.matchers {
		matchers = append(matchers, m)
	}
	d.mu.Unlock()
	waiting := 0
	for _, m := range matchers {
		m.mu.Lock()
		waiting += m.waiting.Len()
		m.mu.Unlock()
	}
	return waiting
}
