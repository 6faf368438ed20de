package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

// adminLife is how long an allowed result is cached. Denials are not cached.
const adminLife = 3 * time.Second

// AdminsOptions configure Admins.
type AdminsOptions struct {
	Config *rest.Config
	// RunnerNamespace is where runner pods are: whatever bindings exist there, no ServiceAccount of it is an
	// administrator.
	RunnerNamespace string
	// Namespace is the server's own, in which the policy of Authors checks who requests a token.
	Namespace string
	// Authors says whether names of users can be relied on; nil: no name can.
	Authors *Authors
	Now     func() time.Time
}

// Admins asks Kubernetes who an administrator is and what they may do: a TokenReview and a SubjectAccessReview on
// resources that exist in roles only. Cluster administrators need no second list of users. It is safe for concurrent
// use.
type Admins struct {
	opt    AdminsOptions
	client kubernetes.Interface

	mu      sync.Mutex
	users   map[[sha256.Size]byte]remembered[admin.User] // by the token's hash: a token is never kept
	rights  map[[sha256.Size]byte]remembered[bool]
	sweptAt time.Time
}

type remembered[T any] struct {
	value T
	until time.Time
}

var _ admin.Access = (*Admins)(nil)

// NewAdmins makes a client of its own, so that a flood of tokens takes nothing from dispatch.
func NewAdmins(opt AdminsOptions) (*Admins, error) {
	if opt.Config == nil || opt.RunnerNamespace == "" {
		return nil, errors.New("access reviews need a client configuration and the namespace of the runners")
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	config := rest.CopyConfig(opt.Config)
	config.QPS, config.Burst, config.RateLimiter = 20, 40, nil
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	return &Admins{
		opt: opt, client: client,
		users: map[[sha256.Size]byte]remembered[admin.User]{}, rights: map[[sha256.Size]byte]remembered[bool]{},
	}, nil
}

// Identify says whose token it is: one made for this API, or one that the cluster's own API takes. A token for this API may name the user who
// requested it.
func (a *Admins) Identify(ctx context.Context, token string) (admin.User, error) {
	key := sha256.Sum256([]byte(token))
	if user, ok := recall(a, a.users, key); ok {
		return user, nil
	}
	named := claimsOf(token)
	for _, audiences := range [][]string{named.audiences(), nil} {
		review, err := a.client.AuthenticationV1().TokenReviews().Create(ctx, &authnv1.TokenReview{
			Spec: authnv1.TokenReviewSpec{Token: token, Audiences: audiences},
		}, metav1.CreateOptions{})
		if err != nil {
			return admin.User{}, fmt.Errorf("reviewing a token: %w", err)
		}
		if !review.Status.Authenticated || audiences != nil && !contains(review.Status.Audiences, adminapi.Audience) {
			continue
		}
		user := toUser(review.Status.User)
		if audiences != nil {
			if err := a.addRequester(ctx, &user, named, review.Status.Audiences); err != nil {
				return admin.User{}, err
			}
		}
		keep(a, a.users, key, user)
		return user, nil
	}
	return admin.User{}, admin.ErrRejected
}

// addRequester adds the user whom a ServiceAccount's token names. The cluster has verified that the token has that audience. It issued the
// token to that user only if it enforced the policy by then (NET-5); otherwise the name is what the client stated.
func (a *Admins) addRequester(ctx context.Context, user *admin.User, named tokenClaims, audiences []string) error {
	if named.user == "" || !contains(audiences, adminapi.AudienceUser+named.user) || !strings.HasPrefix(user.Name, serviceAccountPrefix) {
		return nil
	}
	enforced := false
	if a.opt.Authors != nil && strings.HasPrefix(user.Name, serviceAccountPrefix+a.opt.Namespace+":") {
		var err error
		if enforced, err = a.opt.Authors.Enforced(ctx, named.issued); err != nil {
			return err
		}
	}
	if enforced { // NET-5
		user.Requester = named.user
	} else {
		user.Stated = named.user
	}
	return nil
}

const serviceAccountPrefix = "system:serviceaccount:"

func toUser(info authnv1.UserInfo) admin.User {
	user := admin.User{
		Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: make(map[string][]string, len(info.Extra)),
		Credential: first(info.Extra["authentication.kubernetes.io/credential-id"]),
	}
	for name, values := range info.Extra {
		user.Extra[name] = values
	}
	return user
}

// Allowed asks whether the user may do it (NET-5).
func (a *Admins) Allowed(ctx context.Context, user admin.User, right admin.Right) (bool, error) {
	if strings.HasPrefix(user.Name, serviceAccountPrefix+a.opt.RunnerNamespace+":") {
		return false, nil // NET-5: other people's code runs there
	}
	question, err := json.Marshal([]any{user, right})
	if err != nil {
		return false, fmt.Errorf("encoding an access review: %w", err)
	}
	key := sha256.Sum256(question)
	if yes, ok := recall(a, a.rights, key); ok {
		return yes, nil
	}
	extra := make(map[string]authzv1.ExtraValue, len(user.Extra))
	for name, values := range user.Extra {
		extra[name] = values
	}
	review, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authzv1.SubjectAccessReview{
		Spec: authzv1.SubjectAccessReviewSpec{
			User: user.Name, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authzv1.ResourceAttributes{
				Group: adminapi.Group, Resource: right.Resource, Verb: right.Verb, Name: right.Name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("reviewing whether %s may %s %s: %w", user.Name, right.Verb, right.Resource, err)
	}
	allowed := review.Status.Allowed && !review.Status.Denied
	if allowed {
		keep(a, a.rights, key, true)
	}
	return allowed, nil
}

func recall[T any](a *Admins, from map[[sha256.Size]byte]remembered[T], key [sha256.Size]byte) (T, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	entry, ok := from[key]
	if !ok || !entry.until.After(a.opt.Now()) {
		var none T
		return none, false
	}
	return entry.value, true
}

func keep[T any](a *Admins, in map[[sha256.Size]byte]remembered[T], key [sha256.Size]byte, value T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opt.Now()
	if now.Sub(a.sweptAt) > adminLife {
		a.sweptAt = now
		sweep(a.users, now)
		sweep(a.rights, now)
	}
	in[key] = remembered[T]{value, now.Add(adminLife)}
}

func sweep[T any](from map[[sha256.Size]byte]remembered[T], now time.Time) {
	for key, entry := range from {
		if !entry.until.After(now) {
			delete(from, key)
		}
	}
}
