package http

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

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
		b, hash := newBodies(time.Now), &bytes.Buffer{}
		got, err := b.read(from, size, hash, func() {})
		if breaks {
			require.ErrorIs(t, err, broken)
		} else {
			require.NoError(t, err)
		}
		require.True(t, bytes.Equal(sent, got.bytes))
		require.True(t, bytes.Equal(sent, hash.Bytes()))
		got.release()
		got.release()
		require.Equal(t, [2]int64{smallRoom, largeRoom}, b.free, "all of it was given back, and no more")
		require.Empty(t, b.reading)
	})
}

// TEN-3: what was announced and not sent takes next to nothing, and large bodies take nothing of the room for small ones.
func TestBodies_TEN3_HaveOneBound(t *testing.T) {
	b := newBodies(time.Now)
	_, err := b.read(reads(func([]byte) (int, error) { // nothing has come yet
		require.Equal(t, [2]int64{smallRoom - firstPiece, largeRoom}, b.free, "of 25 MiB that were announced")
		return 0, io.ErrUnexpectedEOF
	}), 25<<20, io.Discard, func() {})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)

	b.free[large] = 0
	_, err = b.read(bytes.NewReader(make([]byte, smallBody+1)), smallBody+1, io.Discard, func() {})
	require.ErrorIs(t, err, errNoRoom, "all of the room for large ones is taken")
	small, err := b.read(bytes.NewReader(make([]byte, smallBody)), smallBody, io.Discard, func() {})
	require.NoError(t, err)
	small.release()
}

// TEN-3: the oldest slow body gives way, once, and only if that is enough. A body that arrives as fast as GitHub's keeps its memory.
func TestBodies_TEN3_SlowOnesGiveWay(t *testing.T) {
	now := time.Now()
	b := newBodies(func() time.Time { return now })
	stopped := make([]int, 2)
	start := func(i int) *body {
		into := b.begin(func() { stopped[i]++ })
		require.True(t, b.take(into, small, smallRoom/2))
		return into
	}
	first := start(0)
	now = now.Add(time.Millisecond)
	second := start(1)
	third := b.begin(func() { require.Fail(t, "the body that needs memory was stopped") })
	now = now.Add(patience - 2*time.Millisecond)
	require.False(t, b.take(third, small, firstPiece), "both may be GitHub's")
	now = now.Add(time.Millisecond)
	require.False(t, b.couldTake(third, small, smallRoom), "only one is slow")
	require.False(t, b.take(third, small, smallRoom))
	require.Equal(t, []int{0, 0}, stopped)
	b.count(first, slowest)
	now = now.Add(time.Millisecond)
	require.True(t, b.take(third, small, firstPiece))
	require.Equal(t, []int{0, 1}, stopped, "the first is as fast as it should be")
	require.True(t, b.end(second))
	require.False(t, b.end(first))
	second.release()
	require.Equal(t, int64(smallRoom/2-firstPiece), b.free[small], "its memory is given back once")
	require.False(t, b.take(second, small, firstPiece), "it takes no more")
	now = now.Add(time.Minute)
	require.False(t, b.take(third, small, smallRoom/2), "the first is complete, and the third does not give way to itself")
	require.Equal(t, []int{0, 1}, stopped)
}

// TEN-3: a body that completes just when it gives way is refused: its memory belongs to another.
func TestBodies_TEN3_WhatGaveWayIsNotUsed(t *testing.T) {
	now := time.Now()
	b := newBodies(func() time.Time { return now })
	stopped := false
	got, err := b.read(reads(func([]byte) (int, error) {
		now = now.Add(2 * patience)
		require.True(t, b.take(b.begin(func() {}), small, smallRoom))
		return 1, io.EOF
	}), 1, io.Discard, func() { stopped = true })
	require.ErrorIs(t, err, errSlow)
	require.ErrorIs(t, err, errNoRoom)
	require.True(t, stopped)
	got.release()
	require.Zero(t, b.free[small])
}

type reads func([]byte) (int, error)

func (f reads) Read(p []byte) (int, error) { return f(p) }
