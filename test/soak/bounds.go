package soak

import "time"

// ReplicaBound is the longest that a job waits for its runner when one of two servers is killed every 20 s at saturation.
// docs/internals/soak.md derives it.
const ReplicaBound = 3 * time.Minute
