package github

import (
	"container/list"
	"sync"
)

// cache holds the most recently used installations, with their tokens and limits.
type cache struct {
	mu      sync.Mutex
	most    int
	create  func(id int64) (*installation, error)
	byID    map[int64]*list.Element // of *installation
	recency *list.List              // front: used last
}

func newCache(most int, create func(id int64) (*installation, error)) *cache {
	return &cache{most: most, create: create, byID: map[int64]*list.Element{}, recency: list.New()}
}

func (c *cache) get(id int64) (*installation, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.byID[id]; ok {
		c.recency.MoveToFront(element)
		return element.Value.(*installation), nil
	}
	in, err := c.create(id)
	if err != nil {
		return nil, err
	}
	c.byID[id] = c.recency.PushFront(in)
	for c.recency.Len() > c.most {
		oldest := c.recency.Back()
		c.recency.Remove(oldest)
		delete(c.byID, oldest.Value.(*installation).id)
	}
	return in, nil
}

// renew replaces an installation whose token is not accepted, and keeps what is known of its limits. When several
// callers come with the same refused one, the first replaces it and the others are given the replacement.
func (c *cache) renew(refused *installation) (*installation, error) {
	c.mu.Lock()
	element, ok := c.byID[refused.id]
	if ok && element.Value.(*installation) == refused {
		fresh, err := c.create(refused.id)
		if err != nil {
			c.mu.Unlock()
			return nil, err
		}
		fresh.discipline = refused.discipline
		element.Value = fresh
	}
	c.mu.Unlock()
	return c.get(refused.id)
}

// peek looks without using.
func (c *cache) peek(id int64) (*installation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.byID[id]
	if !ok {
		return nil, false
	}
	return element.Value.(*installation), true
}

func (c *cache) all() []*installation {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*installation
	for element := c.recency.Front(); element != nil; element = element.Next() {
		all = append(all, element.Value.(*installation))
	}
	return all
}
