package github

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v4"
)

// GitHub refuses an App's JWT that was issued in its future, has expired, or expires in more than ten minutes, by its own
// clock (docs.github.com "Generating a JSON Web Token for a GitHub App"). So the JWT is backdated, and its date follows
// GitHub's clock.
const (
	backdated = time.Minute // as GitHub's documentation asks
	// jwtLife is from issue to end. With the backdating, either bound leaves a host's clock some minutes.
	jwtLife = 9 * time.Minute
	// skewLogged is the least difference that is logged.
	skewLogged = 30 * time.Second
	// skewResigned is how far from now, by GitHub's clock in the refusal, a refused JWT must be dated to be signed again.
	skewResigned = 5 * time.Second
)

// remoteClock is GitHub's clock: this host's, and the offset that the Date of GitHub's answers proves. It is safe for concurrent use.
type remoteClock struct {
	host func() time.Time
	log  *slog.Logger

	mu     sync.Mutex
	ahead  time.Duration // GitHub's, of the host's
	logged time.Duration // the offset that was logged last
}

func newRemoteClock(host func() time.Time, log *slog.Logger) *remoteClock {
	return &remoteClock{host: host, log: log}
}

func (c *remoteClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host().Add(c.ahead)
}

// learn takes what one answer says: GitHub's clock, in whole seconds, at a moment between those at which the request was sent and the answer
// had come. The offset moves no further than that proves, so a slow answer does not move it.
func (c *remoteClock) learn(ctx context.Context, header http.Header, sent, received time.Time) {
	if header.Get("Age") != "" { // a cache answers, with a date of then
		return
	}
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	least, most := date.Sub(received), date.Add(time.Second).Sub(sent)
	c.mu.Lock()
	c.ahead = max(least, min(c.ahead, most))
	ahead, log := c.ahead, (c.ahead-c.logged).Abs() >= skewLogged
	if log {
		c.logged = ahead
	}
	c.mu.Unlock()
	if log {
		c.log.WarnContext(ctx, "GitHub's clock and this host's differ; App tokens are dated by GitHub's", "github_ahead", ahead.Round(time.Second).String())
	}
}

// life is when a JWT that is signed now was issued, and when it ends.
func (c *remoteClock) life() (issued, ends time.Time) {
	issued = c.now().Add(-backdated).Truncate(time.Second) // GitHub takes whole seconds only
	return issued, issued.Add(jwtLife)
}

// clocked learns GitHub's clock from every answer. It repeats a request of the App once that was refused with 401 and dated wrong, by that
// answer: the refusal proves that nothing was done.
type clocked struct {
	next   http.RoundTripper
	clock  *remoteClock
	signer *signer
	appID  int64
}

// RoundTrip implements http.RoundTripper.
func (c *clocked) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.send(req)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !c.misdated(req) {
		return resp, err
	}
	again, ok := c.resigned(req)
	if !ok {
		return resp, nil
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	_ = resp.Body.Close()
	return c.send(again)
}

func (c *clocked) send(req *http.Request) (*http.Response, error) {
	sent := c.clock.host()
	resp, err := c.next.RoundTrip(req)
	if err == nil {
		c.clock.learn(req.Context(), resp.Header, sent, c.clock.host())
	}
	return resp, err
}

// misdated: the request carries a JWT of the App, and a JWT that is signed now would have other times. Its claims are read and not
// verified: it is our own.
func (c *clocked) misdated(req *http.Request) bool {
	text, isJWT := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	var claims jwt.RegisteredClaims
	if !isJWT {
		return false
	}
	if _, _, err := jwt.NewParser().ParseUnverified(text, &claims); err != nil || claims.IssuedAt == nil {
		return false
	}
	issued, _ := c.clock.life()
	return issued.Sub(claims.IssuedAt.Time).Abs() >= skewResigned
}

// resigned is the request with a JWT of now; false if its body cannot be sent again.
func (c *clocked) resigned(req *http.Request) (*http.Request, bool) {
	again := req.Clone(req.Context())
	if req.Body != nil && req.Body != http.NoBody {
		if req.GetBody == nil {
			return nil, false
		}
		body, err := req.GetBody()
		if err != nil {
			return nil, false
		}
		again.Body = body
	}
	text, err := c.signer.Sign(&jwt.RegisteredClaims{Issuer: strconv.FormatInt(c.appID, 10)})
	if err != nil {
		return nil, false
	}
	again.Header.Set("Authorization", "Bearer "+text)
	return again, true
}
