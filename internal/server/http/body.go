package http

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/github"
)

// The maximum memory, in bytes, for the bodies of webhooks (TEN-3). Any client of the listener can send one, and the signature is known
// only at its end.
const (
	// smallBody is room enough for a workflow_job; GitHub's installation events list repositories and can be larger.
	smallBody = 64 << 10
	// smallRoom is for all bodies of at most smallBody together, which larger ones cannot take.
	smallRoom = 8 << 20
	// largeRoom is for all larger ones: one of github.MaxWebhookBody, or several smaller ones. One whose length was not announced, which GitHub
	// never sends, has room up to 14 MiB, because it takes what it had beside what it grows to.
	largeRoom = 28 << 20
	// firstPiece is what a body takes before its sender has sent anything.
	firstPiece = 4 << 10
)

// A body gives way to others, when they need its memory, if it arrives more slowly than slowest after patience. GitHub sends a body in one
// burst. A body that is as fast keeps its memory, regardless of its sender.
const (
	patience = time.Second
	slowest  = 4 << 20 // bytes a second
)

var (
	// errNoRoom: other bodies take all the memory that bodies may take.
	errNoRoom = errors.New("too many concurrent payloads, retry")
	errSlow   = fmt.Errorf("the payload arrived too slowly: %w", errNoRoom)
)

// bodies bounds the memory of the bodies that are being read, all together. It is safe for concurrent use.
type bodies struct {
	now func() time.Time

	mu      sync.Mutex
	free    [2]int64 // by room
	reading map[*body]struct{}
}

// room is an index of what is counted separately.
type room int

const (
	small room = iota
	large
)

func newBodies(now func() time.Time) *bodies {
	return &bodies{now: now, free: [2]int64{smallRoom, largeRoom}, reading: map[*body]struct{}{}}
}

// body is one that is being read; release gives its memory back.
type body struct {
	in    *bodies
	bytes []byte
	room  room // of bytes

	// Guarded by in.mu:
	stop     func() // ends the read that is waiting
	began    time.Time
	received int64
	held     [2]int64
	evicted  bool // it holds nothing any more
}

// read reads r, which is bounded by github.MaxWebhookBody, to its end, and writes it to hash. size is the announced size,
// or -1. The memory for it is not taken before the first smallBody bytes have come. The caller releases the body, also
// after an error. The error is errNoRoom when other bodies take all the room, or this one was too slow while others needed its own; stop then
// made r's Read return.
func (b *bodies) read(r io.Reader, size int64, hash io.Writer, stop func()) (*body, error) {
	into := b.begin(stop)
	err := into.fill(r, size, hash)
	if b.end(into) {
		return into, errSlow // whatever came: its memory is no longer its own
	}
	return into, err
}

func (b *bodies) begin(stop func()) *body {
	b.mu.Lock()
	defer b.mu.Unlock()
	into := &body{in: b, stop: stop, began: b.now()}
	b.reading[into] = struct{}{}
	return into
}

// end reports whether the body was evicted; afterwards it is not.
func (b *bodies) end(into *body) (evicted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.reading, into)
	return into.evicted
}

func (b *body) fill(r io.Reader, size int64, hash io.Writer) error {
	if size > smallBody && !b.in.couldTake(b, large, size+1) { // no use starting to read one for which there is no room now
		return errNoRoom
	}
	if err := b.grow(firstPiece); err != nil {
		return err
	}
	for {
		if len(b.bytes) == cap(b.bytes) {
			if err := b.grow(nextSize(cap(b.bytes), size)); err != nil {
				return err
			}
		}
		n, err := r.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		_, _ = hash.Write(b.bytes[len(b.bytes) : len(b.bytes)+n]) // never fails
		b.bytes = b.bytes[:len(b.bytes)+n]
		b.in.count(b, n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (b *bodies) count(into *body, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	into.received += int64(n)
}

// couldTake says whether take would succeed.
func (b *bodies) couldTake(into *body, from room, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, enough := b.victims(into, from, n)
	return enough
}

// take gives a body n bytes more, at the cost of slow ones if it must.
func (b *bodies) take(into *body, from room, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	victims, enough := b.victims(into, from, n)
	if !enough || into.evicted {
		return false
	}
	for _, victim := range victims {
		b.evict(victim)
	}
	b.free[from] -= n
	into.held[from] += n
	return true
}

// victims are the slow bodies that have to give way for n bytes, the oldest first, and whether that is enough.
func (b *bodies) victims(but *body, from room, n int64) (victims []*body, enough bool) {
	free := b.free[from]
	if free >= n {
		return nil, true
	}
	now := b.now()
	var slow []*body
	for other := range b.reading {
		if other != but && other.held[from] > 0 && other.slow(now) {
			slow = append(slow, other)
		}
	}
	slices.SortFunc(slow, func(x, y *body) int { return x.began.Compare(y.began) })
	for i, other := range slow {
		if free += other.held[from]; free >= n {
			return slow[:i+1], true
		}
	}
	return nil, false
}

// slow compares by duration, which for github.MaxWebhookBody is some seconds.
func (b *body) slow(now time.Time) bool {
	return now.Sub(b.began) >= patience+time.Duration(b.received)*time.Second/slowest
}

// evict takes a body's memory from it. It is free at once: the reader is about to return.
func (b *bodies) evict(victim *body) {
	b.giveBack(victim, small, victim.held[small])
	b.giveBack(victim, large, victim.held[large])
	victim.evicted = true
	delete(b.reading, victim)
	victim.stop()
}

// giveBack does nothing for a body that was evicted.
func (b *bodies) giveBack(from *body, of room, n int64) {
	if !from.evicted {
		b.free[of] += n
		from.held[of] -= n
	}
}

// nextSize doubles. Above smallBody it is all that was announced, because each copy leaves garbage; one byte more finds the end.
func nextSize(now int, size int64) int {
	next := min(2*now, max(now, github.MaxWebhookBody)+1)
	if size >= int64(now) && (size < int64(next) || now >= smallBody) {
		return int(size) + 1
	}
	return next
}

// grow takes the larger memory before it gives back the smaller.
func (b *body) grow(to int) error {
	from := small
	if to > smallBody+1 {
		from = large
	}
	if !b.in.take(b, from, int64(to)) {
		return errNoRoom
	}
	larger := make([]byte, len(b.bytes), to)
	copy(larger, b.bytes)
	b.release()
	b.bytes, b.room = larger, from
	return nil
}

// release gives the memory back. It may be called again.
func (b *body) release() {
	b.in.mu.Lock()
	defer b.in.mu.Unlock()
	b.in.giveBack(b, b.room, int64(cap(b.bytes)))
	b.bytes = nil
}
