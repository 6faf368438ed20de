package image

// Callers is how many callers wait for a request.
func (r *Resolver) Callers() int {
	r.flights.mu.Lock()
	defer r.flights.mu.Unlock()
	callers := 0
	for _, flight := range r.flights.current {
		callers += flight.callers
	}
	return callers
}
