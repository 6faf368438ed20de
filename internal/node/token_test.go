package node_test

import (
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reviewToken asks the API server whose token it is, if it is meant for the audience.
func (f *fixture) reviewToken(token, audience string) authenticationv1.UserInfo {
	f.Helper()
	review, err := f.kube.AuthenticationV1().TokenReviews().Create(f.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	require.NoError(f, err)
	require.True(f, review.Status.Authenticated, review.Status.Error)
	return review.Status.User
}
