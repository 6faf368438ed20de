// Command row is what the containers of rows run:
//
//	serve PORT         print "ready", and send the port to each client, until it is stopped
//	deaf               print "deaf", and ignore SIGINT and SIGTERM
//	hog                use ever more memory, up to 8 GiB
//	hold               hold the volume of job containers, as a runner's supervisor does, until it is stopped
//	dial HOST:PORT     connect, and print what the server sends
//	exit CODE, env NAME, id, pwd, args …, cat FILE, exists FILE
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
)

func main() { os.Exit(program(os.Args[1:])) }

func program(args []string) int {
	if len(args) == 0 {
		fmt.Println("no mode")
		return 64
	}
	switch args[0] {
	case "serve":
		return serve(args[1])
	case "deaf":
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		fmt.Println("deaf")
		<-time.After(10 * time.Minute) // bounded: the container is killed
		return 0
	case "hog":
		return hog()
	case "hold":
		return hold()
	case "dial":
		return dial(args[1])
	case "exit":
		var code int
		_, _ = fmt.Sscan(args[1], &code)
		return code
	case "env":
		fmt.Println(os.Getenv(args[1]))
	case "id":
		fmt.Println(os.Getuid(), os.Getgid())
	case "args":
		fmt.Printf("%q\n", args[1:])
	case "pwd":
		dir, _ := os.Getwd()
		fmt.Println(dir)
	case "exists":
		if _, err := os.Stat(args[1]); err != nil {
			return 1
		}
	case "cat":
		content, err := os.ReadFile(args[1])
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Print(string(content))
	}
	return 0
}

// hog uses memory until it is killed.
func hog() int {
	var all [][]byte
	for range 8 << 10 {
		block := make([]byte, 1<<20)
		for at := 0; at < len(block); at += os.Getpagesize() {
			block[at] = 1
		}
		all = append(all, block)
	}
	fmt.Println("nothing limited", len(all), "MiB")
	return 0
}

// hold lets guards run until this process is stopped.
func hold() int {
	held, err := volume.Take(jobcontainer.Dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop // bounded: the pod is deleted
	held.Release()
	return 0
}

// serve sends each client the arguments that it has itself, so that a row sees whom it has reached.
func serve(port string) int {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", ":"+port)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		s := <-stop // bounded: the container is stopped or killed
		fmt.Println("stopping after", s)
		_ = listener.Close()
	}()
	fmt.Println("ready on", port)
	for {
		connection, err := listener.Accept()
		if err != nil {
			return 0
		}
		_, _ = fmt.Fprintf(connection, "served by %s\n", strings.Join(os.Args[1:], " "))
		_ = connection.Close()
	}
}

// patience is how long dial tries again.
const patience = 10 * time.Second

// dial tries again for some seconds: a service without a health check may not listen yet when it has started. A forwarded port then accepts a
// connection and ends it, as with Docker's proxy.
func dial(address string) int {
	end := time.Now().Add(patience)
	text, err := receive(address)
	for err != nil && time.Now().Before(end) {
		<-time.After(20 * time.Millisecond) // bounded: by its time
		text, err = receive(address)
	}
	fmt.Print(text)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// receive returns what a server sends until it closes the connection, which is an error before it has sent anything.
func receive(address string) (string, error) {
	dialer := net.Dialer{Timeout: patience / 2}
	connection, err := dialer.DialContext(context.Background(), "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	text, err := io.ReadAll(connection)
	if err == nil && len(text) == 0 {
		err = io.ErrUnexpectedEOF
	}
	return string(text), err
}
