package sandbox

// DelayedError reports that a container cannot be started yet, and why, where the reason is one that people know containers by: Reason is a
// CamelCase word for the container's waiting state, Message a sentence. Trying again later is of use.
type DelayedError struct {
	Reason  string
	Message string
	// Err is the cause; optional.
	Err error
}

func (e *DelayedError) Error() string { return e.Message }

func (e *DelayedError) Unwrap() error { return e.Err }
