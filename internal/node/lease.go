package node

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// lease keeps the node's lease. It has a client of its own and does nothing else: no pod and no slow measurement of the host delays it
// (NODE-6).
type lease struct {
	a      *Agent
	kube   kubernetes.Interface
	redial func()
	last   *coordinationv1.Lease
}

func newLease(a *Agent) (*lease, error) {
	kube, redial, err := ownClient(a.opts.Config, a.opts.RequestTimeout)
	if err != nil {
		return nil, err
	}
	return &lease{a: a, kube: kube, redial: redial}, nil
}

func (l *lease) run(ctx context.Context) {
	defer l.redial()
	tick := l.a.opts.Clock.NewTicker(l.a.opts.LeaseRenewal)
	defer tick.Stop()
	for {
		err := l.renew(ctx)
		l.a.metrics.leaseRenewed(err)
		if err == nil {
			now := l.a.opts.Clock.Now()
			l.a.leaseRenewed.Store(&now)
		}
		if err != nil && ctx.Err() == nil {
			l.a.opts.Log.Warn("renewing the node's lease failed, retrying", "error", err)
			l.last = nil
			if !answered(err) {
				l.redial() // without a response the connection may be dead
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
}

// answered reports whether the API server itself gave the error.
func answered(err error) bool { return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown }

func (l *lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.a.opts.RequestTimeout)
	defer cancel()
	leases := l.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if l.last == nil {
		got, err := leases.Get(ctx, l.a.opts.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			l.last, err = leases.Create(ctx, l.next(nil), metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("creating the lease: %w", err)
			}
			return nil
		case err != nil:
			return fmt.Errorf("reading the lease: %w", err)
		}
		l.last = got
	}
	updated, err := leases.Update(ctx, l.next(l.last), metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("updating the lease: %w", err)
	}
	l.last = updated
	return nil
}

// next is the lease as it should be now. It belongs to the Node object, and is deleted with it.
func (l *lease) next(old *coordinationv1.Lease) *coordinationv1.Lease {
	n := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: l.a.opts.Name}}
	if old != nil {
		n = old.DeepCopy()
	}
	n.Spec.HolderIdentity = &l.a.opts.Name
	n.Spec.LeaseDurationSeconds = ptr.To(int32(l.a.opts.LeaseDuration / time.Second))
	n.Spec.RenewTime = &metav1.MicroTime{Time: l.a.opts.Clock.Now()}
	if uid := l.a.nodeUID.Load(); uid != nil {
		n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.a.opts.Name, UID: *uid}}
	}
	return n
}
