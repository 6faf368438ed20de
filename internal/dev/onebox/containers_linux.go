package onebox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets"
	"github.com/bullpen-ci/bullpen/internal/dev/postgres"
	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
)

// containers is the node on which runners are containers, in the namespaces of one machine.
type containers struct {
	box     *Box
	cluster *realnode.Cluster

	mu   sync.Mutex // held by what stops or starts programs of the node
	node *realnode.Node
	pid  atomic.Int64 // of the node's first process; read without mu, which is held for as long as a node takes to start
}

// checkContainers reports what this machine lacks for a node, before anything is created, and finds the node's programs.
func (o *Options) checkContainers() error {
	switch {
	case o.Macs || o.MacHosts != "":
		return errors.New("--containers is for Linux runners, and stand-ins for Macs are processes. Leave one of them out")
	case o.Ungated:
		return errors.New("--network-policies=false has no effect on containers: kube-router enforces the policies. Leave it out")
	}
	if err := realnode.CheckMachine(); err != nil {
		return fmt.Errorf("--containers: %w", err)
	}
	if err := realnode.CheckStateDir(o.StateDir); err != nil {
		return fmt.Errorf("--containers: %w", err)
	}
	found, err := assets.FindNode(assets.Options{})
	if err != nil {
		return fmt.Errorf("--containers: %w", err)
	}
	o.nodeAssets = found
	return nil
}

// startContainers starts the network of nodes and the control plane. A node is added by addNode.
func (b *Box) startContainers(ctx context.Context, opts controlplane.Options) (*controlplane.ControlPlane, error) {
	cluster, err := realnode.Start(ctx, realnode.Options{
		StateDir: b.layout.Dir, ControlPlane: opts, NodeAssets: b.opts.nodeAssets, ImagesDir: b.layout.images(), Outside: true, Log: b.log,
	})
	if err != nil {
		return nil, err
	}
	b.containers = &containers{box: b, cluster: cluster}
	return cluster.Plane(), nil
}

// forward makes this machine's server and stand-in for GitHub reachable for pods.
func (c *containers) forward(ctx context.Context) error {
	to := c.box.addresses
	if err := c.cluster.Forward(ctx, netip.AddrPortFrom(realnode.Gateway(), dispatchPort), to.Internal); err != nil {
		return err
	}
	if c.box.opts.App != nil {
		return nil
	}
	if err := c.cluster.Address(standInAddress()); err != nil {
		return fmt.Errorf("giving the stand-in for GitHub an address: %w", err)
	}
	return c.cluster.Forward(ctx, netip.AddrPortFrom(standInAddress(), 80), to.GitHub)
}

// addNode starts the node with the images that are made of this machine's programs, and the way from runners to the server.
func (c *containers) addNode(ctx context.Context, apply *applier) error {
	if err := c.forward(ctx); err != nil {
		return err
	}
	objects, err := relayObjects(realnode.Gateway().String())
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := apply.apply(ctx, object); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.launch(ctx)
}

// launch is addNode of a cluster that has had the node already. The caller holds mu.
func (c *containers) launch(ctx context.Context) error {
	node, err := c.cluster.AddNode(ctx, NodeName)
	if err != nil {
		return err
	}
	c.setNode(node)
	if err := c.equip(ctx); err != nil {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		c.setNode(nil)
		return errors.Join(err, node.Stop(stopping)) // a later launch begins again
	}
	return nil
}

// equip gives a new node its images. The caller holds mu.
func (c *containers) equip(ctx context.Context) error {
	node := c.node
	if err := c.box.record.add("node-init", node.Init()); err != nil {
		return err
	}
	images, err := c.images(ctx)
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := give(ctx, node, image); err != nil {
			return err
		}
	}
	for _, program := range []string{partContainerd, partKubelet} {
		c.box.report(Event{Kind: EventStarted, Part: program, PID: node.PID(program), Log: node.LogPath(program),
			Message: fmt.Sprintf("%-14s pid %d, of the node", program, node.PID(program))})
	}
	return nil
}

// images are those that are made of this machine's programs. Without a usable PostgreSQL there is none of it.
func (c *containers) images(ctx context.Context) ([]realnode.Image, error) {
	programs, err := postgres.Programs(ctx)
	if err == nil {
		images, err := hostImages(ctx, c.box.opts.Binary, c.box.opts.agent, programs)
		if unusable := (*noDatabaseError)(nil); !errors.As(err, &unusable) {
			return images, err
		}
		c.box.report(Event{Kind: EventProblem, Part: partNode, Message: fmt.Sprintf("image %s is not available: %v. "+
			"Install PostgreSQL's client programs and pg_config, or load another image with `bullpen images load FILE`", PostgresImage, err)})
	}
	return hostImages(ctx, c.box.opts.Binary, c.box.opts.agent, "")
}

func (c *containers) setNode(node *realnode.Node) {
	c.node = node
	if node == nil {
		c.pid.Store(0)
		return
	}
	c.pid.Store(int64(node.Init()))
}

// give imports an image as it is packed.
func give(ctx context.Context, node *realnode.Node, image realnode.Image) error {
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(image.Write(writer)) }() // it ends with the reader
	defer func() { _ = reader.Close() }()                      // always nil
	return node.Import(ctx, reader)
}

// awaitDispatch returns when pods reach the server by its Service.
func (c *containers) awaitDispatch(ctx context.Context) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dialDispatch(ctx) }}}
	tick := time.NewTicker(200 * time.Millisecond) // whether a Service works is seen by asking it
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, dispatchURL+"/", http.NoBody)
		if err != nil {
			return fmt.Errorf("asking the server as runners do: %w", err)
		}
		response, err := client.Do(request)
		if err == nil {
			return response.Body.Close() // any status is the server's
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the way from runners to the server: %w", err)
		case <-tick.C:
		}
	}
}

func (c *containers) dialDispatch(ctx context.Context) (net.Conn, error) {
	service, err := c.box.service(ctx, dispatchName)
	if err != nil {
		return nil, err
	}
	return c.cluster.Dial(ctx, net.JoinHostPort(service.Spec.ClusterIP, "80"))
}

// keep starts programs of the node again that died, and the node itself, until ctx ends.
func (c *containers) keep(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var pause time.Duration
	due := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := c.box.opts.Now()
		if now.Before(due) {
			continue
		}
		acted, err := c.repair(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			pause = nextBackoff(pause, 0)
			c.box.report(Event{Kind: EventProblem, Part: partNode, Message: fmt.Sprintf("%v; retrying in %s", err, pause)})
		case acted:
			pause = nextBackoff(pause, now.Sub(due))
		}
		due = now.Add(pause)
		if !acted {
			due, pause = time.Time{}, 0
		}
	}
}

// repair starts what died, and reports whether anything had.
func (c *containers) repair(ctx context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil {
		return true, c.launch(ctx)
	}
	select {
	case <-c.node.Done():
		c.box.report(Event{Kind: EventEnded, Part: partNode, Log: c.node.LogPath("node-init"),
			Message: "the node died, and all runners with it; starting it again. See its log: " + c.node.LogPath("node-init")})
		err := c.node.Stop(ctx)
		c.setNode(nil)
		if err != nil {
			return true, err
		}
		return true, c.launch(ctx)
	default:
	}
	dead := c.node.Dead()
	for _, program := range dead {
		c.box.report(Event{Kind: EventEnded, Part: program, Log: c.node.LogPath(program),
			Message: fmt.Sprintf("%s died; restarting. Containers continue. See its log: %s", program, c.node.LogPath(program))})
		if err := c.node.Start(ctx, program); err != nil {
			return true, err
		}
		c.box.report(Event{Kind: EventStarted, Part: program, PID: c.node.PID(program), Log: c.node.LogPath(program),
			Message: fmt.Sprintf("%s restarted (pid %d, of the node)", program, c.node.PID(program))})
	}
	return len(dead) > 0, nil
}

// replace restarts a program of the node. PIDs are those that the node gives.
func (c *containers) replace(ctx context.Context, program string, hard bool) (oldPID, newPID int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil {
		return 0, 0, errors.New("the node is being started")
	}
	oldPID = c.node.PID(program)
	if hard {
		err = c.node.Crash(ctx, program)
	} else {
		err = c.node.Restart(ctx, program)
	}
	return oldPID, c.node.PID(program), err
}

// init is the PID of the node's first process, by which other processes enter it; 0 while there is no node.
func (c *containers) init() int {
	if c == nil {
		return 0
	}
	return int(c.pid.Load())
}

// stopNode ends the node, and all runners with it.
func (c *containers) stopNode(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == nil {
		return nil
	}
	err := c.node.Stop(ctx)
	c.setNode(nil)
	return err
}

// stop ends the control plane and the network.
func (c *containers) stop(ctx context.Context) error { return c.cluster.Stop(ctx) }

// clearNode removes what a killed run left of its node. Its processes have ended.
func clearNode(ctx context.Context, l Layout) error {
	if os.Geteuid() != 0 {
		return nil // it had none
	}
	return realnode.RemoveRemains(ctx, l.Dir)
}

// nodeRemains lists what is left of the node on the machine.
func nodeRemains(l Layout) ([]string, error) { return realnode.Remains(l.Dir) }
