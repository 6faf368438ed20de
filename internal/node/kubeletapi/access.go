package kubeletapi

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// allowedFor is how long an allowed result is cached. Denials are not cached.
	allowedFor = 10 * time.Second
	// askTimeout bounds a question to the API server.
	askTimeout = 10 * time.Second
	// remembered is how many answers of a kind are kept at most.
	remembered = 4096
)

// errUnknown reports that a request does not prove who sends it.
var errUnknown = errors.New("authentication required: send a client certificate or a bearer token")

// access establishes who asks, and what they may do. It is safe for concurrent use.
type access struct {
	tokens kubernetes.Interface // asks who a token is of
	kube   kubernetes.Interface // asks what a user may do
	node   string
	roots  func() *x509.CertPool // nil, or returning nil: no client certificate counts
	clock  clock.PassiveClock

	users  *answers[authnv1.UserInfo] // by the token's hash: a token is never kept
	rights *answers[struct{}]
}

func newAccess(tokens, kube kubernetes.Interface, node string, roots func() *x509.CertPool, c clock.PassiveClock) *access {
	return &access{tokens: tokens, kube: kube, node: node, roots: roots, clock: c, users: newAnswers[authnv1.UserInfo](c), rights: newAnswers[struct{}](c)}
}

// identify says who sends a request; errUnknown when that is not proven, another error when it could not be established.
func (a *access) identify(r *http.Request) (authnv1.UserInfo, error) {
	if user, ok := a.byCertificate(r); ok {
		return user, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return authnv1.UserInfo{}, errUnknown
	}
	return a.byToken(r.Context(), token)
}

// byCertificate takes the user from a client certificate that an authority for clients has signed.
func (a *access) byCertificate(r *http.Request) (authnv1.UserInfo, bool) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || a.roots == nil {
		return authnv1.UserInfo{}, false
	}
	roots := a.roots()
	if roots == nil { // to the verification that would mean the machine's own
		return authnv1.UserInfo{}, false
	}
	leaf, between := r.TLS.PeerCertificates[0], x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: a.clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil || leaf.Subject.CommonName == "" {
		return authnv1.UserInfo{}, false
	}
	groups := append([]string{}, leaf.Subject.Organization...)
	return authnv1.UserInfo{Username: leaf.Subject.CommonName, Groups: append(groups, "system:authenticated")}, true
}

// byToken asks the API server, for its own audiences: a token that was made for another does not count.
func (a *access) byToken(ctx context.Context, token string) (authnv1.UserInfo, error) {
	key := sha256.Sum256([]byte(token))
	if user, ok := a.users.recall(key); ok {
		return user, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	review, err := a.tokens.AuthenticationV1().TokenReviews().Create(ctx, &authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return authnv1.UserInfo{}, fmt.Errorf("reviewing a token: %w", err)
	}
	if !review.Status.Authenticated || review.Status.User.Username == "" {
		return authnv1.UserInfo{}, errUnknown
	}
	a.users.keep(key, review.Status.User)
	return review.Status.User, nil
}

// allowed asks whether the user may do this to one of the node's subresources.
func (a *access) allowed(ctx context.Context, user authnv1.UserInfo, verb string, subresources []string) (bool, error) {
	if verb == "" {
		return false, nil
	}
	for _, subresource := range subresources {
		if yes, err := a.allowedOne(ctx, user, verb, subresource); yes || err != nil {
			return yes, err
		}
	}
	return false, nil
}

func (a *access) allowedOne(ctx context.Context, user authnv1.UserInfo, verb, subresource string) (bool, error) {
	question, err := json.Marshal([]any{user, verb, subresource})
	if err != nil {
		return false, fmt.Errorf("encoding a question about a user: %w", err)
	}
	key := sha256.Sum256(question)
	if _, yes := a.rights.recall(key); yes {
		return true, nil
	}
	extra := make(map[string]authzv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = authzv1.ExtraValue(values)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	review, err := a.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authzv1.SubjectAccessReview{
		Spec: authzv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authzv1.ResourceAttributes{
				Version: "v1", Resource: "nodes", Subresource: subresource, Name: a.node, Verb: verb,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("asking whether %s may %s nodes/%s: %w", user.Username, verb, subresource, err)
	}
	if !review.Status.Allowed || review.Status.Denied {
		return false, nil
	}
	a.rights.keep(key, struct{}{})
	return true, nil
}

// answers are yeses that were given lately.
type answers[T any] struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	known *lru.Cache
}

type answer[T any] struct {
	value T
	until time.Time
}

func newAnswers[T any](c clock.PassiveClock) *answers[T] {
	return &answers[T]{clock: c, known: lru.New(remembered)}
}

func (s *answers[T]) recall(key [sha256.Size]byte) (T, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.known.Get(key); ok {
		if a, isAnswer := found.(answer[T]); isAnswer && s.clock.Now().Before(a.until) {
			return a.value, true
		}
		s.known.Remove(key)
	}
	var none T
	return none, false
}

func (s *answers[T]) keep(key [sha256.Size]byte, value T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Add(key, answer[T]{value: value, until: s.clock.Now().Add(allowedFor)})
}
