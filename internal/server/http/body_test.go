package http

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TEN-3: a body is read whole, hashed whole, and its memory is released, for any length, any announced length, and in any
// pieces.
func TestBodies_TEN3_WhatIsReadIsGivenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.SampledFrom([]int{0, 1, firstPiece - 1, firstPiece, firstPiece + 1, smallBody - 1, smallBody, smallBody + 1, 300_000}).Draw(t, "length")
		size := rapid.SampledFrom([]int64{-1, int64(length), int64(length) / 2, int64(length) + 7}).Draw(t, "announced")
		sent := bytes.Repeat([]byte("abcdefg"), length/7+1)[:length]
		var from io.Reader = bytes.NewReader(sent)
		if rapid.Bool().Draw(t, "the last bytes with the end") {
			from = iotest.DataErrReader(from)
		}
		if rapid.Bool().Draw(t, "half of what is asked for") {
			from = iotest.HalfReader(from)
		}
		broken := errors.New("the connection broke")
		breaks := rapid.Bool().Draw(t, "it breaks")
		if breaks {
			from = io.MultiReader(from, iotest.ErrReader(broken))
		}
		b, hash := newBodies(), &bytes.Buffer{}
		got, err := b.read(from, size, hash)
		if breaks {
			require.ErrorIs(t, err, broken)
		} else {
			require.NoError(t, err)
		}
		require.True(t, bytes.Equal(sent, got.bytes))
		require.True(t, bytes.Equal(sent, hash.Bytes()))
		got.release()
		got.release()
		require.True(t, b.small.TryAcquire(smallRoom), "all of it was given back, and no more")
		require.True(t, b.large.TryAcquire(largeRoom))
	})
}

// TEN-3: what was announced and not sent takes next to nothing, and large bodies take nothing of the room for small ones.
func TestBodies_TEN3_HaveOneBound(t *testing.T) {
	b := newBodies()
	_, err := b.read(reads(func([]byte) (int, error) { // nothing has come yet
		require.True(t, b.large.TryAcquire(largeRoom), "of 25 MiB that were announced")
		require.False(t, b.small.TryAcquire(smallRoom-firstPiece+1))
		require.True(t, b.small.TryAcquire(smallRoom-firstPiece))
		b.small.Release(smallRoom - firstPiece)
		return 0, io.ErrUnexpectedEOF
	}), 25<<20, io.Discard)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)

	_, err = b.read(bytes.NewReader(make([]byte, smallBody+1)), smallBody+1, io.Discard)
	require.ErrorIs(t, err, errNoRoom, "all of the room for large ones is taken")
	small, err := b.read(bytes.NewReader(make([]byte, smallBody)), smallBody, io.Discard)
	require.NoError(t, err)
	small.release()
}

type reads func([]byte) (int, error)

func (f reads) Read(p []byte) (int, error) { return f(p) }
