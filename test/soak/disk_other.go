//go:build !linux

package soak

import (
	"context"
	"errors"
	"time"
)

// disk is a file system in memory, which only Linux has.
type disk struct{}

func mountDisk(context.Context, string) (*disk, error) {
	return nil, errors.New("a disk that can be filled takes Linux: leave -disk out")
}

func (*disk) unmount(context.Context) error             { return nil }
func (*disk) full(context.Context, time.Duration) error { return nil }
