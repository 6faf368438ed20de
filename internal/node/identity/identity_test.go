package identity_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/bullpen-ci/bullpen/examples"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/node/identity"
	"github.com/bullpen-ci/bullpen/test/kit"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())                                 // client-go logs every directory that a test has removed
	transport.CertCallbackRefreshDuration = 200 * time.Millisecond // how soon clients notice a rotated certificate; 5 minutes otherwise
	os.Exit(kit.Main(m))
}

// patience bounds what takes a moment.
const patience = time.Minute

// fixture is a real control plane, with its approving and signing controllers.
type fixture struct {
	*testing.T
	env *kit.Env
}

func newFixture(t *testing.T, env *kit.Env) *fixture {
	t.Helper()
	f := &fixture{T: t, env: env}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(examples.NodeBootstrap()), 4096)
	for {
		var binding rbacv1.ClusterRoleBinding
		err := decoder.Decode(&binding)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		_, err = env.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &binding, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
	return f
}

// bootstrap makes a token as the guide says, and returns how to ask with it.
func (f *fixture) bootstrap(id string) *rest.Config {
	return f.bootstrapOf(id, "system:bootstrappers:bullpen")
}

func (f *fixture) bootstrapOf(id, group string) *rest.Config {
	f.Helper()
	const secret = "0123456789abcdef"
	_, err := f.env.Kube.CoreV1().Secrets(metav1.NamespaceSystem).Create(f.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
			"auth-extra-groups": group, "expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		},
	}, metav1.CreateOptions{})
	require.NoError(f, err)
	config := rest.AnonymousClientConfig(f.env.Config)
	config.BearerToken = id + "." + secret
	// The API server reads tokens from a cache, which follows the Secrets.
	require.Eventually(f, func() bool { _, err := f.who(config); return !apierrors.IsUnauthorized(err) }, patience, 10*time.Millisecond)
	return config
}

// revoke deletes a bootstrap token, and waits until the API server rejects it.
func (f *fixture) revoke(id string, config *rest.Config) {
	f.Helper()
	require.NoError(f, f.env.Kube.CoreV1().Secrets(metav1.NamespaceSystem).Delete(f.Context(), "bootstrap-token-"+id, metav1.DeleteOptions{}))
	require.Eventually(f, func() bool { _, err := f.who(config); return apierrors.IsUnauthorized(err) }, patience, 10*time.Millisecond)
}

func (f *fixture) kube(config *rest.Config) kubernetes.Interface {
	f.Helper()
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(f, err)
	return kube
}

func (f *fixture) who(config *rest.Config) (authenticationv1.UserInfo, error) {
	f.Helper()
	review, err := f.kube(config).AuthenticationV1().SelfSubjectReviews().Create(f.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

func (f *fixture) open(options identity.Options) *identity.Identity {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	own, err := identity.Open(ctx, options)
	require.NoError(f, err)
	f.Cleanup(own.Close)
	return own
}

// requests are those of a node, by the user who made each.
func (f *fixture) requests(node string) (users []string) {
	f.Helper()
	list, err := f.env.Kube.CertificatesV1().CertificateSigningRequests().List(f.Context(), metav1.ListOptions{})
	require.NoError(f, err)
	for _, request := range list.Items {
		if request.Spec.Username == identity.UserPrefix+node {
			users = append(users, request.Spec.Username)
		}
	}
	return users
}

// answered asks until the API server answers: a certificate that renews itself closes the connections that were made with the one before, also
// under a request.
func (f *fixture) answered(ask func() error) (err error) {
	f.Helper()
	require.Eventually(f, func() bool {
		err = ask()
		var status apierrors.APIStatus
		return err == nil || errors.As(err, &status)
	}, patience, 10*time.Millisecond)
	return err
}

// confined proves that a configuration is the node's and no other's: NET-5, NET-8.
func (f *fixture) confined(config *rest.Config, node string) {
	f.Helper()
	var user authenticationv1.UserInfo
	require.NoError(f, f.answered(func() (err error) { user, err = f.who(config); return err }))
	require.Equal(f, identity.UserPrefix+node, user.Username)
	require.Contains(f, user.Groups, identity.Group)
	kube := f.kube(config)
	var own *corev1.Node
	err := f.answered(func() (err error) {
		own, err = kube.CoreV1().Nodes().Create(f.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
		return err
	})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(f, err)
		own.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		err = f.answered(func() error {
			_, err := kube.CoreV1().Nodes().Update(f.Context(), own, metav1.UpdateOptions{})
			return err
		})
		require.True(f, apierrors.IsForbidden(err), "NodeRestriction: %v", err)
	}
	for why, ask := range map[string]func() error{
		"NodeRestriction": func() error {
			_, err := kube.CoreV1().Nodes().Create(f.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another"}}, metav1.CreateOptions{})
			return err
		},
		"the Node authorizer": func() error {
			_, err := kube.CoreV1().Secrets(metav1.NamespaceSystem).List(f.Context(), metav1.ListOptions{})
			return err
		},
		"a token without a pod on this node": func() error {
			_, err := kube.CoreV1().ServiceAccounts("default").CreateToken(f.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		},
	} {
		err := f.answered(ask)
		require.True(f, apierrors.IsForbidden(err), "%s: %v", why, err)
	}
}

// NET-5, NET-8: a token that may only ask becomes a certificate that is this node's and nothing else, and is not needed again.
func TestOpen_NET5_NET8_ATokenBecomesTheNodesOwnCertificate(t *testing.T) {
	f := newFixture(t, kit.Cluster(t))
	bootstrap, dir := f.bootstrap("first1"), identity.Dir(t.TempDir())
	_, err := f.kube(bootstrap).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "a bootstrap token is good for nothing else: %v", err)

	own := f.open(identity.Options{Name: "mac-1", Bootstrap: bootstrap, Dir: dir, Lifetime: time.Hour})
	f.confined(own.Config(), "mac-1")
	require.Empty(t, own.Config().BearerToken)
	require.WithinDuration(t, time.Now().Add(time.Hour), own.Current().Leaf.NotAfter, 10*time.Minute, "the signer gives what was asked for")
	require.Equal(t, identity.File(filepath.Dir(dir)), own.Config().CertFile)
	files, err := filepath.Glob(filepath.Join(dir, "*.pem"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "%s holds a key", file)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(text), bootstrap.BearerToken)
	}
	own.Close()

	f.revoke("first1", bootstrap)
	again := f.open(identity.Options{Name: "mac-1", Bootstrap: bootstrap, Dir: dir})
	require.Equal(t, own.Current().Leaf.SerialNumber, again.Current().Leaf.SerialNumber, "a restart asks for nothing")
	f.confined(again.Config(), "mac-1")
}

// An administrator may want to approve each request: then the agent waits, and says for what.
func TestOpen_WaitsForAnApproval(t *testing.T) {
	f := newFixture(t, kit.Cluster(t))
	const group = "system:bootstrappers:by-hand" // which may only request
	_, err := f.env.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	bootstrap, dir := f.bootstrapOf("byhand", group), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = identity.Open(ctx, identity.Options{Name: "mac-3", Bootstrap: bootstrap, Dir: dir})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "kubectl get csr")

	opened := make(chan *identity.Identity, 1)
	go func() {
		own, err := identity.Open(t.Context(), identity.Options{Name: "mac-3", Bootstrap: bootstrap, Dir: dir})
		if err != nil {
			t.Errorf("opening: %v", err)
		}
		opened <- own
	}()
	approve := func() bool {
		requests := f.env.Kube.CertificatesV1().CertificateSigningRequests()
		list, err := requests.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for i := range list.Items {
			request := &list.Items[i]
			if len(request.Status.Conditions) > 0 {
				continue
			}
			require.Equal(t, "system:bootstrap:byhand", request.Spec.Username)
			request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ByHand", Message: "kubectl certificate approve",
			})
			_, err := requests.UpdateApproval(t.Context(), request.Name, request, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		return len(opened) > 0
	}
	require.Eventually(t, approve, patience, 100*time.Millisecond)
	own := <-opened // bounded: its length is not zero
	require.NotNil(t, own)
	defer own.Close()
	f.confined(own.Config(), "mac-3")
}

// Another cluster has taken the place of the one that signed the certificate, or its authority was replaced.
func TestOpen_ACertificateThatIsNotAcceptedIsReplaced(t *testing.T) {
	f := newFixture(t, kit.Cluster(t))
	bootstrap, dir := f.bootstrap("other2"), t.TempDir()
	strange(t, dir, "mac-4")
	own := f.open(identity.Options{Name: "mac-4", Bootstrap: bootstrap, Dir: dir})
	f.confined(own.Config(), "mac-4")
	own.Close()

	// Without a token that is accepted the certificate stays where it is, and the error says what is missing.
	stale := t.TempDir()
	serial := strange(t, stale, "mac-5")
	f.revoke("other2", bootstrap)
	_, err := identity.Open(t.Context(), identity.Options{Name: "mac-5", Bootstrap: bootstrap, Dir: stale})
	require.ErrorIs(t, err, identity.ErrNotAccepted)

	// The API server is unreachable: the certificate is used, for it may be valid.
	away := rest.CopyConfig(bootstrap)
	away.Host = "https://127.0.0.1:1"
	kept, err := identity.Open(t.Context(), identity.Options{Name: "mac-5", Bootstrap: away, Dir: stale})
	require.NoError(t, err)
	defer kept.Close()
	require.Equal(t, serial, kept.Current().Leaf.SerialNumber)
	kept.Close()

	// A certificate of another node is recognized without a request.
	_, err = identity.Open(t.Context(), identity.Options{Name: "mac-6", Bootstrap: bootstrap, Dir: stale})
	require.ErrorIs(t, err, identity.ErrNotAccepted)
}

// strange puts a certificate of another cluster's authority where the node keeps its own.
func strange(t *testing.T, dir, node string) *big.Int {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: identity.UserPrefix + node, Organization: []string{identity.Group}},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	raw, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bullpen-node-current.pem"), text, 0o600))
	return template.SerialNumber
}

// The fallback of docs/guides/credentials.md: an identity of the provider's that may become this node, and no other.
func TestFallback_NET5_NET8_AnIdentityThatMayBecomeOneNode(t *testing.T) {
	f := newFixture(t, kit.Cluster(t))
	become := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "become-mac-8"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"users"}, Verbs: []string{"impersonate"}, ResourceNames: []string{"system:node:mac-8"}},
			{APIGroups: []string{""}, Resources: []string{"groups"}, Verbs: []string{"impersonate"}, ResourceNames: []string{"system:nodes"}},
		},
	}
	_, err := f.env.Kube.RbacV1().ClusterRoles().Create(t.Context(), become, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = f.env.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: become.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: become.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "provider:mac-8"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config, err := f.env.Plane.Identity("provider:mac-8")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, controlplane.WriteKubeconfig(file, config))
	loaded, err := clientcmd.LoadFromFile(file)
	require.NoError(t, err)
	for _, user := range loaded.AuthInfos {
		user.Impersonate, user.ImpersonateGroups = "system:node:mac-8", []string{"system:nodes"}
	}
	require.NoError(t, clientcmd.WriteToFile(*loaded, file))
	as, err := clientcmd.BuildConfigFromFlags("", file)
	require.NoError(t, err)
	f.confined(as, "mac-8")
	as.Impersonate.UserName = "system:node:mac-7"
	_, err = f.who(as)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}
