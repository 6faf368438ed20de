package podconformance

import "slices"

// rows is the table, in the order of the documentation.
func rows() []row {
	return slices.Concat(users, files, tokens, environment, processes, mounts, exits, messages, graces, inits, sidecars, probes, statuses, restarts, logs, commands)
}
