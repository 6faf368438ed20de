package clusterevents

import (
	"context"
	"fmt"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/cli/reach"
)

// page is how many Events one request reads.
const page = 500

// Reader reads the Events of one cluster, with the rights of its configuration.
type Reader struct {
	kube kubernetes.Interface
}

// NewReader makes a client.
func NewReader(config *rest.Config) (*Reader, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	return &Reader{kube}, nil
}

// Read returns the matching events, newest last.
func (r *Reader) Read(ctx context.Context, f Filter) ([]Event, error) {
	events, _, err := r.read(ctx, f)
	return events, err
}

func (r *Reader) read(ctx context.Context, f Filter) (events []Event, version string, err error) {
	if err := f.Check(); err != nil {
		return nil, "", err
	}
	var all []eventsv1.Event
	options := metav1.ListOptions{Limit: page}
	for {
		list, err := r.kube.EventsV1().Events(f.Namespace).List(ctx, options)
		if err != nil {
			return nil, "", reach.Cluster("listing events in "+where(f.Namespace), err)
		}
		all = append(all, list.Items...)
		if options.Continue, version = list.Continue, list.ResourceVersion; options.Continue == "" {
			return f.pick(all), version, nil
		}
	}
}

func where(namespace string) string {
	if namespace == "" {
		return "all namespaces"
	}
	return "namespace " + namespace
}

// Follow reports the events that exist, and then each new or repeated one, until ctx ends, which is no error. While the cluster cannot be read
// it reports why to trouble; the events of that time follow. Again is when to retry.
func (r *Reader) Follow(ctx context.Context, f Filter, tell func(Event) error, trouble func(error), again func() <-chan time.Time) error {
	reported := map[string]int32{} // count by Event
	fresh := func(e Event) bool { count, known := reported[e.uid]; return !known || e.Count > count }
	say := func(e Event) error {
		reported[e.uid] = e.Count
		return tell(e)
	}
	for first := true; ; first = false {
		events, version, err := r.read(ctx, f)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // interrupted
		}
		switch {
		case err != nil && first:
			return err
		case err != nil:
			trouble(err)
		default:
			for _, e := range events {
				if !fresh(e) {
					continue
				}
				if err := say(e); err != nil {
					return err
				}
			}
			forget(reported, events)
			if err := r.watch(ctx, f, version, fresh, say, trouble); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again():
		}
	}
}

// forget drops what the cluster has deleted.
func forget(reported map[string]int32, there []Event) {
	known := make(map[string]bool, len(there))
	for _, e := range there {
		known[e.uid] = true
	}
	for uid := range reported {
		if !known[uid] {
			delete(reported, uid)
		}
	}
}

// watch follows until the cluster ends it, which is no error: it does so every few minutes.
func (r *Reader) watch(ctx context.Context, f Filter, version string, fresh func(Event) bool, say func(Event) error, trouble func(error)) error {
	w, err := r.kube.EventsV1().Events(f.Namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		if ctx.Err() == nil {
			trouble(reach.Cluster("watching events in "+where(f.Namespace), err))
		}
		return nil
	}
	defer w.Stop()
	for change := range w.ResultChan() {
		switch object := change.Object.(type) {
		case *eventsv1.Event:
			if e := of(object); change.Type != watch.Deleted && change.Type != watch.Bookmark && f.wants(e) && fresh(e) {
				if err := say(e); err != nil {
					return err
				}
			}
		case *metav1.Status:
			if err := apierrors.FromObject(object); ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				trouble(reach.Cluster("watching events in "+where(f.Namespace), err))
			}
			return nil
		}
	}
	return nil
}
