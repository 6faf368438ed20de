package standin

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// hookID is the App's one webhook.
const hookID = 1

// deliveryRetention is how long a delivery can be listed and asked for again.
const deliveryRetention = 72 * time.Hour

// maxHookAnswer bounds how much of a receiver's answer is kept.
const maxHookAnswer = 16 << 10

// delivery is one attempt to deliver a webhook. Guarded by the sender's lock once it is listed.
type delivery struct {
	ID             int64
	GUID           string
	Event          string
	Action         string
	InstallationID int64
	RepositoryID   int64
	Redelivery     bool
	Payload        json.RawMessage

	jobName string
	jobID   int64
	runID   int64
	queue   string // deliveries of one queue keep their order
	delay   time.Duration
	lost    bool // not sent at all
	silent  bool // not sent, but listed as answered
	slow    bool // sent, but listed as timed out
	forged  bool // sent with a signature of another secret
	hidden  bool // neither sent nor listed: GitHub lost it before it was a delivery

	// Struck are the faults that bent it, for the ledger.
	Struck []FaultKind

	CreatedAt   time.Time
	DeliveredAt time.Time // zero while pending
	Duration    time.Duration
	StatusCode  int
	Status      string
	Headers     map[string]string
	Answer      string
	AnswerHead  map[string]string
}

func (d *delivery) subject() subject {
	return subject{event: d.Event, action: d.Action, job: d.jobName, run: d.runID, installation: d.InstallationID}
}

func (d *delivery) succeeded() bool { return d.StatusCode >= 200 && d.StatusCode < 300 }

// hookSender delivers webhooks: those of one job in order, different jobs at once, each within a deadline, none twice.
type hookSender struct {
	s       *Server
	slots   chan struct{}
	workers sync.WaitGroup

	mu       sync.Mutex
	ctx      context.Context // nil until Run
	url      string
	secret   string
	nextID   int64
	list     []*delivery // oldest first
	byID     map[int64]*delivery
	queues   map[string][]*delivery // a present key has a worker, once Run runs
	held     map[string][]*delivery // by queue: overtaken on purpose
	failures int
}

func newHookClient(concurrency int) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: concurrency, IdleConnTimeout: 30 * time.Second},
	}
}

func newHookSender(s *Server) *hookSender {
	return &hookSender{
		s: s, slots: make(chan struct{}, s.opts.WebhookConcurrency), url: s.opts.WebhookURL, secret: s.opts.WebhookSecret,
		nextID: 100_000, byID: map[int64]*delivery{}, queues: map[string][]*delivery{}, held: map[string][]*delivery{},
	}
}

func (h *hookSender) start(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ctx = ctx
	for queue := range h.queues {
		h.workLocked(queue)
	}
}

// wait returns when all workers have ended, after the end of start's ctx. A request that is answered later starts none: what it has to tell stays
// pending.
func (h *hookSender) wait() {
	h.mu.Lock()
	h.ctx = nil
	h.mu.Unlock()
	h.workers.Wait()
	h.s.opts.HTTPClient.CloseIdleConnections()
}

func (h *hookSender) target(url, secret string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.url, h.secret = url, secret
}

// send lists a delivery and queues it, bent by the faults in force.
func (h *hookSender) send(d *delivery) {
	double, hold := h.bend(d)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nextID++
	d.ID = h.nextID
	if d.hidden {
		h.listLocked(d)
		return
	}
	if h.s.opts.ShuffleWebhooks {
		d.delay += time.Duration(h.s.opts.Pick(200)) * time.Millisecond
	}
	if d.queue == "" || h.s.opts.ShuffleWebhooks || d.delay > 0 {
		d.queue = "delivery " + strconv.FormatInt(d.ID, 10)
	}
	h.listLocked(d)
	key := jobQueueName(d.jobID)
	if hold && d.jobID != 0 {
		h.held[key] = append(h.held[key], d)
		return
	}
	h.enqueueLocked(d)
	if double {
		again := *d
		h.nextID++
		again.ID = h.nextID
		h.listLocked(&again)
		h.enqueueLocked(&again)
	}
	for _, late := range h.held[key] {
		h.enqueueLocked(late)
	}
	delete(h.held, key)
}

// bend lets the faults in force strike a delivery.
func (h *hookSender) bend(d *delivery) (double, hold bool) {
	strikes := func(kind FaultKind) (Fault, bool) {
		f, ok := h.s.faults.take(kind, d.subject())
		if ok {
			d.Struck = append(d.Struck, kind)
		}
		return f, ok
	}
	if _, d.hidden = strikes(FaultHookVanish); d.hidden {
		return false, false
	}
	_, d.lost = strikes(FaultHookDrop)
	_, d.silent = strikes(FaultHookAnswered)
	_, d.slow = strikes(FaultHookLateAnswer)
	_, d.forged = strikes(FaultHookSignature)
	if f, ok := strikes(FaultHookDelay); ok {
		d.delay = time.Duration(f.Delay)
	}
	_, double = strikes(FaultHookDouble)
	_, hold = strikes(FaultHookReorder)
	return double, hold
}

func jobQueueName(id int64) string { return "job " + strconv.FormatInt(id, 10) }

func (h *hookSender) listLocked(d *delivery) {
	h.list = append(h.list, d)
	h.byID[d.ID] = d
	if surplus := len(h.list) - h.s.opts.MaxDeliveries; surplus > 0 {
		for _, old := range h.list[:surplus] {
			delete(h.byID, old.ID)
		}
		h.list = slices.Delete(h.list, 0, surplus)
	}
}

func (h *hookSender) enqueueLocked(d *delivery) {
	waiting, working := h.queues[d.queue]
	h.queues[d.queue] = append(waiting, d)
	if !working && h.ctx != nil {
		h.workLocked(d.queue)
	}
}

func (h *hookSender) workLocked(queue string) {
	ctx := h.ctx
	h.workers.Go(func() {
		for {
			h.mu.Lock()
			waiting := h.queues[queue]
			if len(waiting) == 0 || ctx.Err() != nil {
				delete(h.queues, queue)
				h.mu.Unlock()
				return
			}
			next := waiting[0]
			h.queues[queue] = waiting[1:]
			h.mu.Unlock()
			h.attempt(ctx, next)
		}
	})
}

// attempt delivers once. An error is recorded in the list, where the App can find it and request a redelivery.
func (h *hookSender) attempt(ctx context.Context, d *delivery) {
	if d.delay > 0 {
		select {
		case <-h.s.opts.After(d.delay):
		case <-ctx.Done():
			return
		}
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return
	}
	h.mu.Lock()
	url, secret := h.url, h.secret
	h.mu.Unlock()
	began := h.s.now()
	result := hookResult{status: "failed to connect to host", code: http.StatusBadGateway}
	if d.forged {
		secret = "not " + secret
	}
	headers := hookHeaders(d, h.s.opts.AppID, secret)
	switch {
	case d.silent:
		result = hookResult{status: "OK", code: http.StatusOK}
	case url != "" && !d.lost:
		result = h.post(ctx, url, headers, d.Payload)
		if ctx.Err() != nil && (result.code < 200 || result.code > 299) {
			return // cut off by our own end: it stays pending in the state file
		}
		if d.slow {
			result = hookResult{status: "timed out", code: http.StatusGatewayTimeout}
		}
	}
	defer h.s.markDirty()
	h.mu.Lock()
	defer h.mu.Unlock()
	d.DeliveredAt, d.Duration, d.Headers = began, h.s.now().Sub(began), headers
	d.Status, d.StatusCode, d.Answer, d.AnswerHead = result.status, result.code, result.body, result.headers
	if !d.succeeded() {
		h.failures++
		h.s.log.Debug("a webhook was not delivered", "event", d.Event, "action", d.Action, "guid", d.GUID, "status", d.Status, "code", d.StatusCode)
	}
}

type hookResult struct {
	status  string
	code    int
	body    string
	headers map[string]string
}

func hookHeaders(d *delivery, appID int64, secret string) map[string]string {
	headers := map[string]string{
		"Accept": "*/*", "Content-Type": "application/json", "User-Agent": "GitHub-Hookshot/b7a5f3c",
		"X-GitHub-Event": d.Event, "X-GitHub-Delivery": d.GUID, "X-GitHub-Hook-ID": strconv.Itoa(hookID),
		"X-GitHub-Hook-Installation-Target-ID": strconv.FormatInt(appID, 10), "X-GitHub-Hook-Installation-Target-Type": "integration",
	}
	if secret != "" {
		headers["X-Hub-Signature-256"] = signature(secret, d.Payload)
	}
	return headers
}

func signature(secret string, payload []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(payload)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func (h *hookSender) post(ctx context.Context, url string, headers map[string]string, payload []byte) hookResult {
	ctx, cancel := context.WithTimeout(ctx, h.s.opts.WebhookTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(payload))
	if err != nil {
		return hookResult{status: "the webhook URL is not usable", code: http.StatusBadGateway}
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := h.s.opts.HTTPClient.Do(request)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return hookResult{status: "timed out", code: http.StatusGatewayTimeout}
		}
		return hookResult{status: "failed to connect to host", code: http.StatusBadGateway}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxHookAnswer))
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return hookResult{status: "timed out", code: http.StatusGatewayTimeout}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)) // so that the connection can be used again
	result := hookResult{status: "OK", code: response.StatusCode, body: string(body), headers: map[string]string{}}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		result.status = "Invalid HTTP Response: " + strconv.Itoa(response.StatusCode)
	}
	for name := range response.Header {
		result.headers[name] = response.Header.Get(name)
	}
	return result
}

// again queues a new attempt of a delivery under the same GUID.
func (h *hookSender) again(id int64) (int64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.byID[id]
	if old == nil || old.hidden || len(old.Payload) == 0 || h.s.now().Sub(old.CreatedAt) > deliveryRetention {
		return 0, false
	}
	h.nextID++
	d := &delivery{
		ID: h.nextID, GUID: old.GUID, Event: old.Event, Action: old.Action, InstallationID: old.InstallationID,
		RepositoryID: old.RepositoryID, Redelivery: true, Payload: old.Payload, jobName: old.jobName, jobID: old.jobID, runID: old.runID,
		queue: "delivery " + strconv.FormatInt(h.nextID, 10), CreatedAt: h.s.now(),
	}
	h.listLocked(d)
	h.enqueueLocked(d)
	return d.ID, true
}

// snapshot copies the finished deliveries with an id below the cursor (0: all), newest first, up to limit.
func (h *hookSender) snapshot(cursor int64, limit int, keep func(*delivery) bool) []delivery {
	oldest := h.s.now().Add(-deliveryRetention)
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []delivery
	for _, d := range slices.Backward(h.list) {
		if len(out) == limit || d.CreatedAt.Before(oldest) {
			break
		}
		if (cursor == 0 || d.ID < cursor) && !d.DeliveredAt.IsZero() && (keep == nil || keep(d)) {
			out = append(out, *d)
		}
	}
	return out
}

func (h *hookSender) get(id int64) (delivery, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.byID[id]
	if d == nil || d.hidden || h.s.now().Sub(d.CreatedAt) > deliveryRetention {
		return delivery{}, false
	}
	return *d, true
}

func (h *hookSender) counts() (all, failed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.list {
		if !d.hidden {
			all++
		}
	}
	return all, h.failures
}
