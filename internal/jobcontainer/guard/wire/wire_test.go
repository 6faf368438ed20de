package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fixed is a connection that has received some bytes, and then nothing.
type fixed struct {
	net.Conn
	in io.Reader
}

func (f fixed) Read(p []byte) (int, error)      { return f.in.Read(p) }
func (f fixed) SetReadDeadline(time.Time) error { return nil }

func received(content []byte, window int) *Conn {
	return NewConn(fixed{in: bytes.NewReader(content)}, window)
}

func frame(kind Kind, length uint32, payload string) []byte {
	head := binary.BigEndian.AppendUint32([]byte{byte(kind)}, length)
	return append(head, payload...)
}

// socketPair is a connection of the kind that guards have. One of net.Pipe takes no deadline once its other end is closed.
func socketPair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	var ends [2]net.Conn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "socket")
		ends[i], err = net.FileConn(file)
		require.NoError(t, errors.Join(err, file.Close()))
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}

func TestConn_PassesFramesOn(t *testing.T) {
	t.Parallel()
	for _, window := range []int{16, 4 << 10, MaxData} {
		ours, theirs := socketPair(t)
		sender, receiver := NewConn(ours, 16), NewConn(theirs, window)
		sizes := []int{0, 1, window, min(window+1, MaxData), MaxData}
		go func() {
			for _, size := range sizes {
				_ = sender.Write(KindStdout, bytes.Repeat([]byte{'x'}, size))
			}
			_ = sender.WriteJSON(KindExit, Exit{Code: 3})
			_ = sender.Close()
		}()
		for _, size := range sizes {
			kind, payload, err := receiver.Read(time.Minute)
			require.NoError(t, err)
			require.Equal(t, KindStdout, kind)
			require.Len(t, payload, size)
			require.Equal(t, size, bytes.Count(payload, []byte{'x'}))
		}
		kind, payload, err := receiver.Read(time.Minute)
		require.NoError(t, err)
		require.Equal(t, KindExit, kind)
		require.JSONEq(t, `{"code":3}`, string(payload))
		_, _, err = receiver.Read(time.Minute)
		require.ErrorIs(t, err, io.EOF)
	}
}

func TestConn_RefusesInvalidFrames(t *testing.T) {
	t.Parallel()
	for name, content := range map[string][]byte{
		"unknown kind": frame(0, 0, ""), "another unknown kind": frame(200, 0, ""),
		"too much output": frame(KindStdout, MaxData+1, ""), "too large a request": frame(KindRequest, MaxRequest+1, ""),
		"a ping with a payload": frame(KindPing, 1, "x"), "the largest length": frame(KindStdin, 1<<32-1, ""),
	} {
		_, _, err := received(content, 64).Read(0)
		require.ErrorIs(t, err, ErrProtocol, name)
	}
	for _, content := range [][]byte{frame(KindStdout, 5, "four"), frame(KindRequest, MaxRequest, "short"), {byte(KindPing), 0}} {
		_, _, err := received(content, 64).Read(0)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
	require.ErrorIs(t, received(nil, 64).Write(KindSignal, []byte("12")), ErrProtocol)
}

func TestConn_BuffersWhatArrivedAndNotWhatWasAnnounced(t *testing.T) {
	t.Parallel()
	content := frame(KindRequest, MaxRequest, strings.Repeat("x", 1000))
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			_, _, _ = received(content, 64).Read(0)
		}
	}).AllocedBytesPerOp()
	require.Less(t, allocated, int64(4*MaxData))
}

func request(change func(*Request)) *Request {
	r := &Request{Version: Version}
	change(r)
	return r
}

func TestDecodeRequest_ChecksEverything(t *testing.T) {
	t.Parallel()
	process := Process{Argv: []string{"true"}, Env: []string{"A=b", "EMPTY="}, Dir: "/"}
	with := func(change func(*Process)) *Request {
		p := process
		change(&p)
		return request(func(r *Request) { r.Exec = &Exec{Process: p} })
	}
	for _, good := range []*Request{
		with(func(*Process) {}),
		request(func(r *Request) { r.Start = &Start{Process: process, StopSignal: "SIGRTMIN+3"} }),
		request(func(r *Request) { r.Hosts = &Hosts{Entries: []HostEntry{{"::1", "db_1.example-x"}}} }),
		request(func(r *Request) { r.Relay = &Relay{"udp", 1, 65535} }),
	} {
		payload, err := json.Marshal(good)
		require.NoError(t, err)
		got, err := DecodeRequest(payload)
		require.NoError(t, err)
		require.Equal(t, good, got)
	}
	for want, bad := range map[string]*Request{
		"0 operations":                     request(func(*Request) {}),
		"2 operations":                     request(func(r *Request) { r.Status, r.Logs = &Empty{}, &Empty{} }),
		"protocol version 2":               {Version: 2, Status: &Empty{}},
		"no command was given":             with(func(p *Process) { p.Argv = nil }),
		"a NUL byte":                       with(func(p *Process) { p.Env = []string{"A=b\x00c"} }),
		"an environment variable without":  with(func(p *Process) { p.Env = []string{"=b"} }),
		"working directory \"x\"":          with(func(p *Process) { p.Dir = "x" }),
		"ulimit nofile":                    with(func(p *Process) { p.Nofile = &Limits{2, 1} }),
		"more than 16384 arguments":        with(func(p *Process) { p.Argv = make([]string, maxStrings+1); p.Argv[0] = "x" }),
		"unknown signal \"TERMINATE\"":     request(func(r *Request) { r.Start = &Start{Process: process, StopSignal: "TERMINATE"} }),
		"timeout 0":                        request(func(r *Request) { r.Health = &Health{Process: process} }),
		"grace -1ns":                       request(func(r *Request) { r.Stop = &Stop{Grace: -1} }),
		"grace 1h0m0s":                     request(func(r *Request) { r.End = &End{Grace: time.Hour} }),
		"volume \"v\"":                     request(func(r *Request) { r.Links = &Links{[]Link{{Volume: "v", Source: "relative", Target: "/x"}}} }),
		"host name \"a b\"":                request(func(r *Request) { r.Hosts = &Hosts{[]HostEntry{{"127.0.0.1", "a b"}}} }),
		"address \"fe80::1%eth0\"":         request(func(r *Request) { r.Hosts = &Hosts{[]HostEntry{{"fe80::1%eth0", "a"}}} }),
		"forwarding port 80 to 80":         request(func(r *Request) { r.Relay = &Relay{"tcp", 80, 80} }),
		"protocol \"sctp\"":                request(func(r *Request) { r.Relay = &Relay{"sctp", 80, 81} }),
		"more than 1024 host names":        request(func(r *Request) { r.Hosts = &Hosts{make([]HostEntry, maxEntries+1)} }),
		"more than 1024 volumes":           request(func(r *Request) { r.Links = &Links{make([]Link, maxEntries+1)} }),
		"expected absolute paths other th": request(func(r *Request) { r.Links = &Links{[]Link{{Volume: "v", Source: "/a", Target: "/.."}}} }),
	} {
		payload, err := json.Marshal(bad)
		require.NoError(t, err)
		_, err = DecodeRequest(payload)
		require.ErrorContains(t, err, want)
		var failure *Failure
		require.ErrorAs(t, err, &failure)
		require.Equal(t, FailInvalid, failure.Code)
	}
	for _, text := range []string{"", "{", `{"version":1,"status":{}}{}`, `{"version":1,"status":{},"more":1}`, `[]`, `{"version":1,"exec":{"process":{"argv":["a"],"env":"s3cret"}}}`} {
		_, err := DecodeRequest([]byte(text))
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func TestParseSignal_TakesWhatImagesHave(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]syscall.Signal{
		"": 15, "SIGTERM": 15, "term": 15, "9": 9, "SIGQUIT": 3, "SIGWINCH": 28, "SIGRTMIN+3": 37, "RTMIN": 34, "SIGRTMAX-1": 63, "64": 64, "SIGUSR1": 10,
	} {
		got, err := ParseSignal(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"0", "65", "-1", "SIG", "SIGSIGTERM", "RTMIN+31", "RTMAX-31", "RTMIN+", "RTMIN+x", "TERM "} {
		_, err := ParseSignal(text)
		require.ErrorContains(t, err, "signal \"", text)
	}
}

// FuzzConn_Read reads whatever a peer may send.
func FuzzConn_Read(f *testing.F) {
	f.Add(frame(KindStdout, 5, "hello"))
	f.Add(frame(KindRequest, MaxRequest, "{}"))
	f.Add(append(frame(KindPing, 0, ""), frame(KindSignal, 1, "\x0f")...))
	f.Add(frame(KindExit, 10, `{"code":0}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		conn := received(content, 32)
		total := 0
		for {
			kind, payload, err := conn.Read(0)
			if err != nil {
				break
			}
			if kind.most() < len(payload) {
				t.Fatalf("a frame of kind %d has %d bytes", kind, len(payload))
			}
			total += HeadLen + len(payload)
		}
		if total > len(content) {
			t.Fatalf("%d bytes in frames of %d bytes", total, len(content))
		}
	})
}

// FuzzDecodeRequest: what is accepted means the same when it is sent again.
func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"version":1,"exec":{"process":{"argv":["sh","-c","true"],"env":["A=b"],"dir":"/x","user":"1001:1001"},"stdin":true}}`))
	f.Add([]byte(`{"version":1,"start":{"process":{"argv":["a"],"nofile":{"soft":1,"hard":2}},"stopSignal":"RTMIN+1"}}`))
	f.Add([]byte(`{"version":1,"hosts":{"entries":[{"address":"127.0.0.1","name":"db"}]}}`))
	f.Add([]byte(`{"version":1,"links":{"links":[{"volume":"a:/b","source":"/c","target":"/b"}]}}`))
	f.Add([]byte(`{"version":1,"end":{"grace":10000000000}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		first, err := DecodeRequest(payload)
		if err != nil {
			return
		}
		again, err := json.Marshal(first)
		require.NoError(t, err)
		second, err := DecodeRequest(again)
		require.NoError(t, err)
		require.Equal(t, first, second)
	})
}
