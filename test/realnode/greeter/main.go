// Command greeter stands in for a database: it writes a line to each connection. With the argument check it exits with 0 if one can connect.
package main

import (
	"fmt"
	"net"
	"os"
)

const port = ":5432"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 1 && os.Args[1] == "check" {
		conn, err := net.Dial("tcp", "localhost"+port) //nolint:noctx // it is in this pod
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	listener, err := net.Listen("tcp", port) //nolint:noctx // until the container ends
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(conn, os.Getenv("GREETING"))
		_ = conn.Close()
	}
}
