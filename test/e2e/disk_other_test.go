//go:build !linux

package e2e

import "testing"

// smallDisk needs a file system that is made in memory.
func smallDisk(*testing.T, string) fullDisk { return nil }
