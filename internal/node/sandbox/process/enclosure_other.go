//go:build unix && !linux

package process

import "errors"

const canEnclose = false

// RunEnter works on Linux only.
func RunEnter(string, []string) error {
	return errors.New("containers with a network and files of their own are possible on Linux only")
}
