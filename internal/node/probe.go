package node

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// probeKind is what a probe is asked for.
type probeKind string

const (
	// startupProbe: nothing else is asked before it has succeeded.
	startupProbe probeKind = "startup"
	// readinessProbe: the container counts as ready while it succeeds.
	readinessProbe probeKind = "readiness"
	// livenessProbe: the container is stopped when it fails.
	livenessProbe probeKind = "liveness"
)

func probeKey(container string, kind probeKind) string {
	return "probe/" + string(kind) + "/" + container
}

// probeOf is a container's probe of a kind, or nil.
func (w *worker) probeOf(name string, kind probeKind) *corev1.Probe {
	if w.pod == nil {
		return nil
	}
	c, err := containerOf(w.pod, nil, name)
	if err != nil {
		return nil
	}
	switch kind {
	case startupProbe:
		return c.StartupProbe
	case livenessProbe:
		return c.LivenessProbe
	case readinessProbe:
		return c.ReadinessProbe
	}
	return nil
}

// readyAtStart: without a probe a running container is ready.
func (w *worker) readyAtStart(name string) bool {
	return w.probeOf(name, readinessProbe) == nil && w.probeOf(name, startupProbe) == nil
}

func (w *worker) cancelProbes(name string) {
	for _, kind := range []probeKind{startupProbe, readinessProbe, livenessProbe} {
		w.cancelOp(probeKey(name, kind))
	}
}

// probe runs the probes that a running container wants now, until it ends.
func (w *worker) probe(ctx context.Context, name string) {
	kinds := []probeKind{readinessProbe, livenessProbe}
	if w.containers[name].observed.starting {
		kinds = []probeKind{startupProbe}
	}
	for _, kind := range kinds {
		probe := w.probeOf(name, kind)
		if t := w.containers[name]; probe == nil || kind != readinessProbe && (t.termSent || t.killSent) {
			continue
		}
		ask, stop := w.question(name, probe), w.stopOf(name, probe)
		w.begin(ctx, probeKey(name, kind), 0, func(ctx context.Context) error {
			w.probeLoop(ctx, name, kind, probe, ask, stop)
			return ctx.Err()
		}, func(error) {})
	}
}

// probeLoop asks until ctx ends or, but for readiness, until there is an answer.
func (w *worker) probeLoop(ctx context.Context, name string, kind probeKind, probe *corev1.Probe, ask func(context.Context) bool, stop stopPlan) {
	clock := w.a.opts.Clock
	period := secondsOr(probe.PeriodSeconds, 10)
	counter := probeCounter{successThreshold: max(probe.SuccessThreshold, 1), failureThreshold: orDefault(probe.FailureThreshold, 3)}
	counter.good = kind == livenessProbe
	next := clock.After(time.Duration(probe.InitialDelaySeconds) * time.Second)
	for {
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
		next = clock.After(period)
		ok := probeOnce(ctx, probe, ask)
		if ctx.Err() != nil {
			return
		}
		good, changed := counter.observe(ok)
		failed := !good && counter.inARow >= counter.failureThreshold
		switch {
		case kind == readinessProbe && changed:
			w.post(ctx, func() { w.containers[name].observed.ready = good })
		case kind == startupProbe && good:
			w.post(ctx, func() {
				w.containers[name].observed.starting = false
				w.containers[name].observed.ready = w.probeOf(name, readinessProbe) == nil
			})
			return
		case kind != readinessProbe && failed:
			w.unhealthy(ctx, name, kind, stop)
			return
		}
	}
}

func probeOnce(ctx context.Context, probe *corev1.Probe, ask func(context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, secondsOr(probe.TimeoutSeconds, 1))
	defer cancel()
	return ask(ctx)
}

// question is what a probe asks, ready to be asked beside the worker.
func (w *worker) question(name string, probe *corev1.Probe) func(context.Context) bool {
	c, err := containerOf(w.pod, nil, name)
	switch {
	case err != nil:
		return func(context.Context) bool { return false }
	case probe.HTTPGet != nil:
		return w.getting(c, probe.HTTPGet)
	case probe.TCPSocket != nil:
		address := w.addressOf(c, probe.TCPSocket.Port)
		return func(ctx context.Context) bool {
			conn, err := w.a.opts.Dial(ctx, "tcp", address)
			return err == nil && conn.Close() == nil
		}
	}
	command := probeCommand(c, probe.Exec.Command)
	return func(ctx context.Context) bool {
		code, err := w.a.opts.Sandbox.Exec(ctx, w.ref.UID, name, command, sandbox.Streams{})
		return err == nil && code == 0
	}
}

// probeCommand expands references as a kubelet does for probes: to variables that the container has a value for in its specification.
func probeCommand(c *corev1.Container, command []string) []string {
	values := map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
	}
	expanded := make([]string, 0, len(command))
	for _, arg := range command {
		expanded = append(expanded, expand(arg, func(name string) (string, bool) { v, ok := values[name]; return v, ok }))
	}
	return expanded
}

// addressOf is where a container's port is, which may have a name.
func (w *worker) addressOf(c *corev1.Container, port intstr.IntOrString) string {
	number := port.IntValue()
	for _, p := range c.Ports {
		if number == 0 && p.Name == port.StrVal {
			number = int(p.ContainerPort)
		}
	}
	return net.JoinHostPort(w.a.machine(w.address).PodIP, strconv.Itoa(number))
}

// getting is an httpGet of the pod's own address.
func (w *worker) getting(c *corev1.Container, get *corev1.HTTPGetAction) func(context.Context) bool {
	url := "http://" + w.addressOf(c, get.Port) + "/" + strings.TrimPrefix(get.Path, "/")
	return func(ctx context.Context) bool { return w.get(ctx, url, get.HTTPHeaders) }
}

// get asks over a connection of its own, and takes any answer from 200 to 399 for a yes, as a kubelet does.
func (w *worker) get(ctx context.Context, target string, headers []corev1.HTTPHeader) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return false
	}
	for _, h := range headers {
		request.Header.Add(h.Name, h.Value)
	}
	client := &http.Client{
		Transport:     &http.Transport{DialContext: w.a.opts.Dial, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 10<<10))
	return err == nil && response.StatusCode >= 200 && response.StatusCode < 400
}

func secondsOr(n, otherwise int32) time.Duration {
	return time.Duration(orDefault(n, otherwise)) * time.Second
}

func orDefault(n, otherwise int32) int32 {
	if n > 0 {
		return n
	}
	return otherwise
}

// probeCounter turns a probe's results into a state: a number of consecutive results changes it. It begins as failed.
type probeCounter struct {
	successThreshold, failureThreshold int32
	good                               bool
	last                               bool
	inARow                             int32
}

func (c *probeCounter) observe(ok bool) (good, changed bool) {
	if ok != c.last {
		c.last, c.inARow = ok, 0
	}
	c.inARow++
	threshold := c.failureThreshold
	if ok {
		threshold = c.successThreshold
	}
	if ok == c.good || c.inARow < threshold {
		return c.good, false
	}
	c.good = ok
	return c.good, true
}
