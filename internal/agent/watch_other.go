//go:build !linux

package agent

import "errors"

// watch is not offered here: the supervisor polls instead.
func watch(string) (appeared <-chan struct{}, stop func(), err error) {
	return nil, nil, errors.ErrUnsupported
}
