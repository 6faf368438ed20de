package node

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// probeKind is what a probe is asked for.
type probeKind string

const (
	// startupProbe: nothing else is asked before it has succeeded.
	startupProbe probeKind = "startup"
	// readinessProbe: the container counts as ready while it succeeds.
	readinessProbe probeKind = "readiness"
	// livenessProbe: the container is ended when it fails.
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
		if probe == nil || kind != readinessProbe && w.containers[name].killSent {
			continue
		}
		target := w.probeTarget(name, probe)
		w.begin(ctx, probeKey(name, kind), 0, func(ctx context.Context) error {
			w.probeLoop(ctx, name, kind, probe, target)
			return ctx.Err()
		}, func(error) {})
	}
}

// probeLoop asks until ctx ends or, but for readiness, until there is an answer.
func (w *worker) probeLoop(ctx context.Context, name string, kind probeKind, probe *corev1.Probe, target string) {
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
		ok := w.probeOnce(ctx, name, probe, target)
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
			w.unhealthy(ctx, name, kind)
			return
		}
	}
}

// unhealthy ends a container that its probe has given up.
func (w *worker) unhealthy(ctx context.Context, name string, kind probeKind) {
	if err := w.a.opts.Sandbox.Signal(ctx, w.ref.UID, name, sandbox.Kill); err != nil {
		return // it is asked again
	}
	w.post(ctx, func() {
		w.log.Warn("a container's probe failed: stopping the container", "container", name, "probe", string(kind))
		w.containers[name].killSent = true
		if w.pod != nil {
			w.a.events.Eventf(w.pod, corev1.EventTypeWarning, "Unhealthy", "Stopping container %s: its %s probe failed", name, kind)
		}
	})
}

// probeTarget is the URL of an httpGet, or "".
func (w *worker) probeTarget(name string, probe *corev1.Probe) string {
	if probe.HTTPGet == nil {
		return ""
	}
	port := probe.HTTPGet.Port.IntValue()
	if c, err := containerOf(w.pod, nil, name); err == nil && port == 0 {
		for _, p := range c.Ports {
			if p.Name == probe.HTTPGet.Port.StrVal {
				port = int(p.ContainerPort)
			}
		}
	}
	return "http://" + net.JoinHostPort(w.a.machine(w.address).PodIP, strconv.Itoa(port)) + "/" + trimSlash(probe.HTTPGet.Path)
}

func trimSlash(path string) string {
	if len(path) > 0 && path[0] == '/' {
		return path[1:]
	}
	return path
}

func (w *worker) probeOnce(ctx context.Context, name string, probe *corev1.Probe, target string) bool {
	ctx, cancel := context.WithTimeout(ctx, secondsOr(probe.TimeoutSeconds, 1))
	defer cancel()
	if probe.HTTPGet != nil {
		return w.get(ctx, target, probe.HTTPGet.HTTPHeaders)
	}
	code, err := w.a.opts.Sandbox.Exec(ctx, w.ref.UID, name, probe.Exec.Command, sandbox.Streams{})
	return err == nil && code == 0
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
