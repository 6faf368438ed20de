package cluster

import (
	"crypto/sha256"
	"sync"
	"time"
)

// reviewLife is how long an accepted token is cached; the watch revokes sooner, since a pod that it no longer
// shows is not served.
const reviewLife = time.Minute

// reviewCache keeps hashes only: a token is never held longer than its request (NET-3).
type reviewCache struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[[sha256.Size]byte]reviewed
	swept   time.Time
}

type reviewed struct {
	id    Identity
	until time.Time
}

func newReviewCache(now func() time.Time) *reviewCache {
	return &reviewCache{now: now, entries: map[[sha256.Size]byte]reviewed{}, swept: now()}
}

func reviewKey(token, audience string) [sha256.Size]byte {
	return sha256.Sum256([]byte(audience + "\x00" + token))
}

func (c *reviewCache) get(token, audience string) (Identity, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.entries[reviewKey(token, audience)]
	if !ok || !entry.until.After(c.now()) {
		return Identity{}, false
	}
	return entry.id, true
}

func (c *reviewCache) put(token, audience string, id Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.swept) > reviewLife {
		for key, entry := range c.entries {
			if !entry.until.After(now) {
				delete(c.entries, key)
			}
		}
		c.swept = now
	}
	c.entries[reviewKey(token, audience)] = reviewed{id, now.Add(reviewLife)}
}
