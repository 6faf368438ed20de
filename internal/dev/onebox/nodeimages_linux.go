package onebox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/onebox/imageserver"
	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
)

// serveImages starts the server by which the controller looks up images that the node has.
func (c *containers) serveImages(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.box.addresses.Images)
	if err != nil {
		return fmt.Errorf("listening for requests for the node's images: %w", err)
	}
	server := &http.Server{
		Handler: &imageserver.Handler{
			Images:  c.listImages,
			Content: realnode.ContentDir(c.box.layout.images(), NodeName),
			Log:     c.box.log,
		},
		ReadHeaderTimeout: 5 * time.Second,
	}
	c.box.watchers.Go(func() {
		defer context.AfterFunc(c.box.ctx, func() { _ = server.Close() })()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.box.report(Event{Kind: EventProblem, Part: partNode, Message: fmt.Sprintf("%v; jobs cannot use loaded images. Restart `bullpen up`", err)})
		}
	})
	return nil
}

// listImages lists what the node has. While containerd or the node restarts it tries again, until ctx ends: a job fails if its image is not found.
func (c *containers) listImages(ctx context.Context) ([]realnode.NodeImage, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := errors.New("the node is being started")
		if init := c.init(); init != 0 {
			var images []realnode.NodeImage
			if images, err = (realnode.Runtime{Init: init}).Images(ctx); err == nil {
				return images, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}
