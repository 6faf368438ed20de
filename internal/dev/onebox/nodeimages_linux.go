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

// serveImages has the controller find the images that the node has: those of jobs that no registry has, or that were loaded.
func (c *containers) serveImages(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.box.addresses.Images)
	if err != nil {
		return fmt.Errorf("listening for questions about the node's images: %w", err)
	}
	server := &http.Server{
		Handler: &imageserver.Handler{
			Images: func(ctx context.Context) ([]realnode.NodeImage, error) {
				init := c.init()
				if init == 0 {
					return nil, errors.New("the node is being started")
				}
				return realnode.Runtime{Init: init}.Images(ctx)
			},
			Content: realnode.ContentDir(c.box.layout.images(), NodeName),
			Log:     c.box.log,
		},
		ReadHeaderTimeout: 5 * time.Second,
	}
	c.box.watchers.Go(func() {
		defer context.AfterFunc(c.box.ctx, func() { _ = server.Close() })()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.box.report(Event{Kind: EventProblem, Part: partNode, Message: fmt.Sprintf("%v; images that were loaded are not found for jobs. Restart `bullpen up`", err)})
		}
	})
	return nil
}
