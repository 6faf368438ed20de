package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Kind of a frame.
type Kind byte

// The kinds, with who sends them.
const (
	KindRequest Kind = 1 + iota // client: a Request
	KindStdin                   // client: standard input of Exec; empty: its end. The next one only after KindTaken
	KindSignal                  // client: a signal's number (one byte) for the process group of Exec
	KindPing                    // both: nothing
	KindTaken                   // guard: KindStdin was written to the process
	KindStdout                  // guard
	KindStderr                  // guard
	KindExit                    // guard: an Exit; the last frame
	KindResult                  // guard: the request's result; the last frame
	KindFailure                 // guard: a Failure; the last frame
)

// Bounds of payloads, in bytes.
const (
	MaxData    = 64 << 10 // Stdin, Stdout, Stderr
	MaxRequest = 4 << 20  // more than the kernel takes as arguments and environment of a process
	MaxAnswer  = 64 << 10 // Exit, Result, Failure
)

// HeadLen is the length of a frame before its payload.
const HeadLen = 5

// How long a peer may be silent while a process runs. Pings are sent by a goroutine of their own.
const (
	PingEvery    = 10 * time.Second
	PeerPatience = time.Minute
)

// ErrProtocol is a frame that its sender must not send.
var ErrProtocol = errors.New("invalid frame")

func (k Kind) most() int {
	switch k {
	case KindRequest:
		return MaxRequest
	case KindStdin, KindStdout, KindStderr:
		return MaxData
	case KindSignal:
		return 1
	case KindPing, KindTaken:
		return 0
	case KindExit, KindResult, KindFailure:
		return MaxAnswer
	}
	return -1
}

// Conn sends and receives frames. One goroutine may read while others write.
type Conn struct {
	conn    net.Conn
	reader  *bufio.Reader
	large   []byte // of the last frame that does not fit into reader
	discard int    // what of reader the last frame occupies
	mu      sync.Mutex
}

// NewConn takes over a connection. window is the size of its read buffer in bytes: frames up to it are read without copying.
func NewConn(conn net.Conn, window int) *Conn {
	return &Conn{conn: conn, reader: bufio.NewReaderSize(conn, window+HeadLen)}
}

// Close closes the connection, and ends reads and writes.
func (c *Conn) Close() error { return c.conn.Close() }

// Read returns the next frame. The payload is valid until the next Read. patience bounds the wait for all of it; zero is no bound. The
// error is io.EOF if the peer has closed the connection between two frames, and an ErrProtocol for an invalid one.
func (c *Conn) Read(patience time.Duration) (Kind, []byte, error) {
	if patience > 0 {
		if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return 0, nil, err
		}
	}
	if _, err := c.reader.Discard(c.discard); err != nil {
		return 0, nil, err
	}
	c.discard, c.large = 0, nil
	head, err := c.reader.Peek(HeadLen)
	if err != nil {
		if errors.Is(err, io.EOF) && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	kind, length := Kind(head[0]), binary.BigEndian.Uint32(head[1:])
	most := kind.most()
	if most < 0 || uint64(length) > uint64(most) { //nolint:gosec // most is not negative
		return 0, nil, fmt.Errorf("%w: kind %d of %d bytes", ErrProtocol, kind, length)
	}
	payload, err := c.payload(int(length))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return kind, payload, err
}

// payload reads what follows the head that was peeked at.
func (c *Conn) payload(length int) ([]byte, error) {
	if HeadLen+length <= c.reader.Size() {
		frame, err := c.reader.Peek(HeadLen + length)
		if err != nil {
			return nil, err
		}
		c.discard = len(frame)
		return frame[HeadLen:], nil
	}
	if _, err := c.reader.Discard(HeadLen); err != nil {
		return nil, err
	}
	// The buffer grows with what has arrived, not with what was announced.
	for len(c.large) < length {
		piece := min(length-len(c.large), max(len(c.large), MaxData))
		c.large = append(c.large, make([]byte, piece)...)
		if _, err := io.ReadFull(c.reader, c.large[len(c.large)-piece:]); err != nil {
			return nil, err
		}
	}
	return c.large, nil
}

// Write sends a frame. It waits for as long as the peer does not read.
func (c *Conn) Write(kind Kind, payload []byte) error {
	frame := make([]byte, HeadLen, HeadLen+len(payload))
	return c.WriteFrame(kind, append(frame, payload...))
}

// WriteFrame is Write for a payload that stands behind HeadLen bytes, which it overwrites: nothing is copied.
func (c *Conn) WriteFrame(kind Kind, frame []byte) error {
	length := len(frame) - HeadLen
	if length < 0 || length > kind.most() {
		return fmt.Errorf("%w: kind %d of %d bytes", ErrProtocol, kind, length)
	}
	frame[0] = byte(kind)
	binary.BigEndian.PutUint32(frame[1:], uint32(length)) //nolint:gosec // bounded by most
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.conn.Write(frame)
	return err
}

// WriteJSON sends a value as a frame.
func (c *Conn) WriteJSON(kind Kind, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding a frame: %w", err)
	}
	return c.Write(kind, payload)
}
