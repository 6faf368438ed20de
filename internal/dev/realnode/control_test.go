package realnode

import (
	"encoding/json"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// nodeInit plays node-init on the other side of a connection.
type nodeInit struct {
	*testing.T
	in  *json.Decoder
	out *json.Encoder
	end func()
}

func newNodeInit(t *testing.T) (*control, *nodeInit) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return newControl(ours), &nodeInit{t, json.NewDecoder(theirs), json.NewEncoder(theirs), func() { require.NoError(t, theirs.Close()) }}
}

func (n *nodeInit) receive() (r request) {
	require.NoError(n, n.in.Decode(&r))
	return r
}

func (n *nodeInit) say(r reply) { require.NoError(n, n.out.Encode(r)) }

func TestControl_TheSetupIsConfirmedOrRefused(t *testing.T) {
	for _, refusal := range []string{"", "mounting /proc: operation not permitted"} {
		c, init := newNodeInit(t)
		go func() {
			var s setup
			if init.in.Decode(&s) == nil && s.Hostname == "one" {
				_ = init.out.Encode(reply{Error: refusal})
			}
		}()
		err := c.setUp(setup{Hostname: "one"})
		if refusal == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, refusal)
		}
	}
}

func TestControl_AProgramStartsEndsAndIsSignalled(t *testing.T) {
	c, init := newNodeInit(t)
	started := make(chan *run, 1)
	go func() {
		r, err := c.start("kubelet", []string{"/kubelet"}, nil, "/log")
		if err != nil {
			t.Error(err)
		}
		started <- r
	}()
	asked := init.receive()
	require.Equal(t, []string{"/kubelet"}, asked.Start.Args)
	init.say(reply{ID: asked.Start.ID, PID: 7, Started: true})
	r := await.Receive(t, started, "the start returns")
	require.False(t, r.over())

	go func() { _ = c.signal(r, 15, false) }()
	require.Equal(t, signalOrder{ID: asked.Start.ID, Number: 15}, *init.receive().Signal)
	init.say(reply{ID: asked.Start.ID, Error: "sending signal 15: operation not permitted"}) // it changes nothing
	init.say(reply{ID: asked.Start.ID, Ended: "exit status 2"})
	await.Receive(t, r.done, "the end is reported")
	require.Equal(t, "exit status 2", r.outcome)
}

func TestControl_AProgramThatCannotStart(t *testing.T) {
	c, init := newNodeInit(t)
	go func() {
		var r request
		if init.in.Decode(&r) == nil {
			_ = init.out.Encode(reply{ID: r.Start.ID, Error: "no such file or directory"})
		}
	}()
	_, err := c.start("kubelet", []string{"/nope"}, nil, "/log")
	require.ErrorContains(t, err, "starting kubelet: no such file or directory")
}

func TestControl_EverythingEndsWithTheNode(t *testing.T) {
	c, init := newNodeInit(t)
	started := make(chan *run, 1)
	go func() {
		r, _ := c.start("kubelet", nil, nil, "") // an error leaves r nil, which the test sees
		started <- r
	}()
	init.say(reply{ID: init.receive().Start.ID, Started: true})
	r := await.Receive(t, started, "the start returns")
	init.end()
	await.Receive(t, r.done, "the program has ended with the node")
	await.Receive(t, c.ended, "the connection has ended")
	require.Equal(t, errNodeEnded.Error(), r.outcome)
	_, err := c.start("kube-proxy", nil, nil, "")
	require.ErrorIs(t, err, errNodeEnded)
	require.ErrorIs(t, c.setUp(setup{}), errNodeEnded)
}
