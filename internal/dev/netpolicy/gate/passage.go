package gate

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// identity is the pod that a ServiceAccount token is bound to.
type identity struct {
	name types.NamespacedName
	uid  types.UID
}

// longestHead bounds the head of a request.
const longestHead = 64 << 10

var errNoIdentity = errors.New("the request carries no token that is bound to a pod")

// introduce reads the head of a connection's first request, and the identity in it. The bytes that it read are always returned, to be
// passed on.
func introduce(conn io.Reader) (said []byte, who identity, err error) {
	var read bytes.Buffer
	head := bufio.NewReader(io.TeeReader(io.LimitReader(conn, longestHead), &read))
	request, err := http.ReadRequest(head)
	if err != nil {
		return read.Bytes(), identity{}, fmt.Errorf("reading a request: %w", err)
	}
	token, bearer := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		return read.Bytes(), identity{}, errNoIdentity
	}
	who, err = boundTo(token)
	return read.Bytes(), who, err
}

// boundTo reads a token's claims without verifying them: that is for the server to do.
func boundTo(token string) (identity, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return identity{}, errNoIdentity
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return identity{}, errNoIdentity
	}
	var claims struct {
		Kubernetes struct {
			Namespace string `json:"namespace"`
			Pod       struct {
				Name string    `json:"name"`
				UID  types.UID `json:"uid"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Kubernetes.Pod.UID == "" {
		return identity{}, errNoIdentity
	}
	of := claims.Kubernetes
	return identity{types.NamespacedName{Namespace: of.Namespace, Name: of.Pod.Name}, of.Pod.UID}, nil
}

// pass copies both ways until either side has ended or the connection is cut.
func (p *passage) pass(said []byte) {
	var ways sync.WaitGroup
	ways.Go(func() {
		if _, err := p.beyond.Write(said); err == nil {
			_, _ = io.Copy(p.beyond, p.inside)
		}
		p.close()
	})
	ways.Go(func() {
		_, _ = io.Copy(p.inside, p.beyond)
		p.close()
	})
	ways.Wait()
}

func (p *passage) close() {
	_ = p.inside.Close()
	_ = p.beyond.Close()
}

// abort ends both sides at once: what is under way is lost, as when a network drops it.
func (p *passage) abort() {
	abort(p.inside)
	if p.beyond != nil {
		abort(p.beyond)
	}
}

func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
