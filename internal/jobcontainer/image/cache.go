package image

import (
	"container/list"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
)

// key is what a result depends on. Credentials and the pool's named registries are part of it, so a private image is shown only to
// those who could read it, and a registry with a private address only to pools that permit it.
type key struct {
	name        imagename.Name
	platform    Platform
	credentials [sha256.Size]byte
	reach       [sha256.Size]byte
}

// pinned is the key of the digest that k's tag had.
func (k key) pinned(digest string) key {
	k.name.Tag, k.name.Digest = "", digest
	return k
}

// cached is an image as it was at a time.
type cached struct {
	digest string
	config jobcontainer.ImageConfig
	at     time.Time // when it was requested
}

// cache keeps what was used last, within a bound of bytes.
type cache struct {
	maxBytes int

	mu      sync.Mutex
	bytes   int
	entries map[key]*list.Element
	recent  *list.List // of *entry, the last used first
}

type entry struct {
	key   key
	value cached
	bytes int
}

func newCache(maxBytes int) *cache {
	return &cache{maxBytes: maxBytes, entries: map[key]*list.Element{}, recent: list.New()}
}

func (c *cache) get(k key) (cached, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[k]
	if !ok {
		return cached{}, false
	}
	c.recent.MoveToFront(element)
	return element.Value.(*entry).value, true
}

func (c *cache) put(k key, value cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[k]; ok {
		c.remove(element)
	}
	e := &entry{key: k, value: value, bytes: sizeOf(k, value)}
	c.entries[k] = c.recent.PushFront(e)
	c.bytes += e.bytes
	for c.bytes > c.maxBytes && c.recent.Len() > 0 {
		c.remove(c.recent.Back())
	}
}

func (c *cache) remove(element *list.Element) {
	e := c.recent.Remove(element).(*entry)
	delete(c.entries, e.key)
	c.bytes -= e.bytes
}

// sizeOf estimates the memory of an entry: its texts, and what the map, the list and the slices need for them.
func sizeOf(k key, value cached) int {
	const fixed, perText = 1024, 32
	config := value.config
	texts := slices.Concat(config.Entrypoint, config.Cmd, config.Env, config.ExposedPorts, config.Volumes,
		[]string{k.name.Registry, k.name.Repository, k.name.Tag, k.name.Digest, value.digest, config.User, config.WorkingDir, config.StopSignal})
	if config.Healthcheck != nil {
		texts = append(texts, config.Healthcheck.Test...)
	}
	size := fixed
	for _, text := range texts {
		size += perText + len(text)
	}
	return size
}

// clone is a copy that its receiver may change.
func clone(config jobcontainer.ImageConfig) jobcontainer.ImageConfig {
	for _, texts := range []*[]string{&config.Entrypoint, &config.Cmd, &config.Env, &config.ExposedPorts, &config.Volumes} {
		*texts = slices.Clone(*texts)
	}
	if config.Healthcheck != nil {
		check := *config.Healthcheck
		check.Test = slices.Clone(check.Test)
		config.Healthcheck = &check
	}
	return config
}
