package model

import (
	"bytes"
	"unsafe"
)

const stateSize = int(unsafe.Sizeof(state{}))

// bytes is the state as it lies in memory: it holds bytes alone, so that there is no padding between them.
func (s *state) bytes() *[stateSize]byte { return (*[stateSize]byte)(unsafe.Pointer(s)) }

func (s *state) less(t *state) bool { return bytes.Compare(s.bytes()[:], t.bytes()[:]) < 0 }
