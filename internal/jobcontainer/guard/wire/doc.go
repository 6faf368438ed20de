// Package wire is what a client and a container's guard say to each other through the guard's socket: one connection for each request,
// frames of bounded length, and nothing that either side must trust. Begin with request.go, then conn.go.
//
// A frame is its kind (one byte), the length of its payload (four bytes, big endian) and the payload. The first frame of a client is a
// request. The guard answers with KindExit (of a process that ran in the foreground), KindResult or KindFailure, and closes the
// connection. A connection that ends without one of them has failed, whatever was received before.
//
// While a process runs, both sides send KindPing every PingEvery, and give up a peer that was silent for PeerPatience.
package wire
