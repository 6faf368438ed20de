package github

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// How long a result is cached. A missing one is looked up again soon, because a user is probably about to create it.
const (
	lookupKept    = 10 * time.Minute
	lookupMissing = time.Minute
	mostLookups   = 1024
)

// lookups remembers what names stand for. Those who ask for the same name at the same time wait for one answer. The names
// that were not asked for the longest are forgotten first.
type lookups[K comparable, V any] struct {
	now func() time.Time

	mu    sync.Mutex
	byKey map[K]*list.Element // of *lookup[K, V]
	order *list.List          // front: used last
}

// lookup is one name. The holder of turn may use what is below it.
type lookup[K comparable, V any] struct {
	key  K
	turn chan struct{}

	value V
	err   error
	until time.Time
}

func newLookups[K comparable, V any](now func() time.Time) *lookups[K, V] {
	return &lookups[K, V]{now: now, byKey: map[K]*list.Element{}, order: list.New()}
}

// get reads what the key stands for unless that is known. An error for which missing is true is remembered too, and no other.
func (l *lookups[K, V]) get(ctx context.Context, key K, missing func(error) bool, read func() (V, error)) (V, error) {
	one := l.entry(key)
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done(): // nothing was sent
		var none V
		return none, &fleet.RateLimitedError{Resource: ResourceConcurrency, Until: l.now().Add(time.Second)}
	}
	defer func() { <-one.turn }()
	if l.now().Before(one.until) {
		return one.value, one.err
	}
	value, err := read()
	switch {
	case err == nil:
		one.value, one.err, one.until = value, nil, l.now().Add(lookupKept)
	case missing(err):
		one.value, one.err, one.until = value, err, l.now().Add(lookupMissing)
	}
	return value, err
}

func (l *lookups[K, V]) entry(key K) *lookup[K, V] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if element, ok := l.byKey[key]; ok {
		l.order.MoveToFront(element)
		return element.Value.(*lookup[K, V]) //nolint:forcetypeassert // filled below
	}
	one := &lookup[K, V]{key: key, turn: make(chan struct{}, 1)}
	l.byKey[key] = l.order.PushFront(one)
	for l.order.Len() > mostLookups {
		oldest := l.order.Remove(l.order.Back()).(*lookup[K, V]) //nolint:forcetypeassert // as above
		delete(l.byKey, oldest.key)
	}
	return one
}

// forget has the key looked up again.
func (l *lookups[K, V]) forget(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if element, ok := l.byKey[key]; ok {
		l.order.Remove(element)
		delete(l.byKey, key)
	}
}
