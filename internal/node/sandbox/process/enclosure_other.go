//go:build unix && !linux

package process

import "errors"

const canEnclose = false

// RunEnter works on Linux only.
func RunEnter(string, []string) error {
	return errors.New("containers with their own network and files require Linux")
}
