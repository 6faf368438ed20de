package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func probeKey(container string) string { return "probe/" + container }

// readinessProbe is the container's probe, or nil.
func (w *worker) readinessProbe(name string) *corev1.Probe {
	if w.pod == nil {
		return nil
	}
	c, err := containerOf(w.pod, nil, name)
	if err != nil {
		return nil
	}
	return c.ReadinessProbe
}

// readyAtStart: without a probe a running container is ready.
func (w *worker) readyAtStart(name string) bool { return w.readinessProbe(name) == nil }

// probe runs the container's readiness probe until the container ends.
func (w *worker) probe(ctx context.Context, name string, probe *corev1.Probe) {
	w.begin(ctx, probeKey(name), 0, func(ctx context.Context) error {
		w.probeLoop(ctx, name, probe)
		return ctx.Err()
	}, func(error) {})
}

func (w *worker) probeLoop(ctx context.Context, name string, probe *corev1.Probe) {
	clock := w.a.opts.Clock
	period := secondsOr(probe.PeriodSeconds, 10)
	counter := readinessCounter{successThreshold: max(probe.SuccessThreshold, 1), failureThreshold: orDefault(probe.FailureThreshold, 3)}
	next := clock.After(time.Duration(probe.InitialDelaySeconds) * time.Second)
	for {
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
		next = clock.After(period)
		ok := w.probeOnce(ctx, name, probe)
		if ctx.Err() != nil {
			return
		}
		if ready, changed := counter.observe(ok); changed {
			w.post(ctx, func() { w.containers[name].observed.ready = ready })
		}
	}
}

func (w *worker) probeOnce(ctx context.Context, name string, probe *corev1.Probe) bool {
	ctx, cancel := context.WithTimeout(ctx, secondsOr(probe.TimeoutSeconds, 1))
	defer cancel()
	code, err := w.a.opts.Sandbox.Exec(ctx, w.ref.UID, name, probe.Exec.Command)
	return err == nil && code == 0
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

// readinessCounter turns probe results into readiness: so many in a row change it. It begins as not ready.
type readinessCounter struct {
	successThreshold, failureThreshold int32
	ready                              bool
	last                               bool
	inARow                             int32
}

func (c *readinessCounter) observe(ok bool) (ready, changed bool) {
	if ok != c.last {
		c.last, c.inARow = ok, 0
	}
	c.inARow++
	threshold := c.failureThreshold
	if ok {
		threshold = c.successThreshold
	}
	if ok == c.ready || c.inARow < threshold {
		return c.ready, false
	}
	c.ready = ok
	return c.ready, true
}
