package onebox

import (
	"cmp"
	"context"
	"sync"
)

// startFleet starts our own processes, and with containers the node beside them.
func (b *Box) startFleet(ctx context.Context, apply *applier) error {
	if b.opts.Containers {
		return b.startContained(ctx, apply)
	}
	if !b.opts.Ungated {
		if err := b.startGate(ctx); err != nil {
			return err
		}
	}
	return b.startParts(ctx)
}

func (b *Box) startContained(ctx context.Context, apply *applier) error {
	if err := b.containers.serveImages(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var fromNode error
	var starting sync.WaitGroup
	starting.Go(func() { fromNode = b.containers.addNode(ctx, apply) })
	fromParts := b.startParts(ctx)
	if fromParts != nil {
		cancel()
	}
	starting.Wait()
	if err := cmp.Or(fromParts, fromNode); err != nil {
		return err
	}
	b.watchers.Go(func() { b.containers.keep(b.ctx) })
	b.watchers.Go(func() { b.watchImages(b.ctx) })
	return b.containers.awaitDispatch(ctx)
}
