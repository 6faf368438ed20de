package dispatch

// Matchers is how many pools have a matcher at this replica.
func (d *Dispatcher) Matchers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.matchers)
}

// Minted notes the outcome of a request to GitHub.
func (m *MintBudget) Minted(account Account, err error) { m.b.minted(account, err) }

// Unused takes slots back that no claim was made with, and reports whether others may have gone without them.
func (m *MintBudget) Unused(accountID int64, slots int) bool { return m.b.unused(accountID, slots) }

// OnFreed has f called, instead of nothing, when a slot is free that somebody went without.
func (m *MintBudget) OnFreed(f func()) { m.b.freed = f }

// Forgive ends the account's waits.
func (m *MintBudget) Forgive(accountID int64) { m.b.forgive(accountID) }

// JoinedPolls is how many polls wait for work at this replica or are in a batch, and have not left.
func (d *Dispatcher) JoinedPolls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	joined := 0
	for _, m := range d.matchers {
		m.mu.Lock()
		joined += len(m.byPod)
		m.mu.Unlock()
	}
	return joined
}
