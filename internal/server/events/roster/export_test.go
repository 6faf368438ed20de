package roster

// Readings is how many scopes' lists the reader holds.
func (r *Reader) Readings() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.readings)
}
