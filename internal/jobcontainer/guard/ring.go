package guard

import "sync"

// ring keeps the end of a process's output. Its methods may be called by many goroutines.
type ring struct {
	mu      sync.Mutex
	most    int // bytes of kept
	kept    int // bytes, pieceCost for each piece included
	dropped int64
	pieces  []piece
}

// piece is output of one stream. It is not changed once another follows.
type piece struct {
	stderr bool
	data   []byte
}

// pieceSize is up to where output of the same stream is joined, so that a process that writes byte by byte costs no more than its output.
const pieceSize = 8 << 10

// pieceCost is what a piece takes beside its data, in bytes: a process may change between its streams with every byte.
const pieceCost = 64

func newRing(most int) *ring { return &ring{most: most} }

// write copies data, and drops the oldest pieces.
func (r *ring) write(stderr bool, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(data) > 0 {
		last := len(r.pieces) - 1
		if last < 0 || r.pieces[last].stderr != stderr || len(r.pieces[last].data) >= pieceSize {
			r.pieces = append(r.pieces, piece{stderr: stderr, data: make([]byte, 0, min(len(data), pieceSize))})
			last++
			r.kept += pieceCost
		}
		n := min(len(data), pieceSize-len(r.pieces[last].data))
		r.pieces[last].data = append(r.pieces[last].data, data[:n]...)
		data = data[n:]
		r.kept += n
	}
	for r.kept > r.most && len(r.pieces) > 1 {
		gone := len(r.pieces[0].data)
		r.kept, r.dropped = r.kept-gone-pieceCost, r.dropped+int64(gone)
		r.pieces[0] = piece{}
		r.pieces = r.pieces[1:]
	}
}

// content returns what is kept, and how many bytes before it are not.
func (r *ring) content() (pieces []piece, dropped int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pieces {
		pieces = append(pieces, piece{stderr: p.stderr, data: append([]byte(nil), p.data...)})
	}
	return pieces, r.dropped
}

// tail returns the last most bytes of both streams.
func (r *ring) tail(most int) string {
	pieces, _ := r.content()
	var all []byte
	for _, p := range pieces {
		all = append(all, p.data...)
	}
	return string(all[max(0, len(all)-most):])
}
