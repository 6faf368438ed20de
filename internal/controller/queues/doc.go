// Package queues says how the controllers of this tree are queued for: by the work queue of client-go, which a worker can always
// leave.
package queues
