package onebox

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	nodeidentity "github.com/bullpen-ci/bullpen/internal/node/identity"
)

// approver approves the certificates that the node agents of this machine serve logs with. Nothing in a cluster does so
// automatically, since nothing there knows which addresses are a node's; here the only nodes are our own children on the
// loopback interface.
type approver struct {
	kube kubernetes.Interface
	log  *slog.Logger
}

func newApprover(kube kubernetes.Interface, log *slog.Logger) *approver {
	return &approver{kube: kube, log: log}
}

// run works until ctx ends.
func (a *approver) run(ctx context.Context) {
	factory := informers.NewSharedInformerFactoryWithOptions(a.kube, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeletServingSignerName).String()
	}))
	look := func(found any) {
		if request, ok := found.(*certificatesv1.CertificateSigningRequest); ok {
			a.approve(ctx, request.DeepCopy())
		}
	}
	_, err := factory.Certificates().V1().CertificateSigningRequests().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, found any) { look(found) },
	})
	if err != nil {
		a.log.Error("requests of the node agent for a certificate to serve with will not be seen", "error", err)
		return
	}
	factory.StartWithContext(ctx)
	<-ctx.Done()
	factory.Shutdown()
}

// approve leaves a request alone that has an answer, or is not exactly what our node may ask for. An approval that fails is made good at the next
// request, which the node agent makes when this one is not answered.
func (a *approver) approve(ctx context.Context, request *certificatesv1.CertificateSigningRequest) {
	if len(request.Status.Conditions) > 0 || len(request.Status.Certificate) > 0 {
		return
	}
	node := NodeName
	if request.Spec.Username == nodeidentity.UserPrefix+MacNodeName {
		node = MacNodeName
	}
	if err := checkServingRequest(request.Spec, node, net.IPv4(127, 0, 0, 1)); err != nil {
		a.log.Warn("a request for a certificate to serve with is not approved", "request", request.Name, "user", request.Spec.Username, "reason", err)
		return
	}
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "NodeOfThisMachine",
		Message: "bullpen up approves what its own node agent serves logs with",
	})
	_, err := a.kube.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
	if err != nil && ctx.Err() == nil {
		a.log.Warn("approving the node agent's certificate failed", "request", request.Name, "error", err)
	}
}

// servingUsages are all that a certificate to serve with is for.
var servingUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageServerAuth,
}

// checkServingRequest says why a request is not the node's own, for its own name and address and nothing else; nil when it is.
func checkServingRequest(spec certificatesv1.CertificateSigningRequestSpec, node string, address net.IP) error {
	user := nodeidentity.UserPrefix + node
	switch {
	case spec.SignerName != certificatesv1.KubeletServingSignerName:
		return fmt.Errorf("signer %q", spec.SignerName)
	case spec.Username != user || !slices.Contains(spec.Groups, nodeidentity.Group):
		return errors.New("it does not come from this machine's node agent")
	case !slices.Contains(spec.Usages, certificatesv1.UsageServerAuth):
		return errors.New("it is not for serving")
	}
	for _, usage := range spec.Usages {
		if !slices.Contains(servingUsages, usage) {
			return fmt.Errorf("usage %q", usage)
		}
	}
	block, rest := pem.Decode(spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		return errors.New("it is not one request in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return fmt.Errorf("its signature: %w", err)
	}
	switch {
	case request.Subject.CommonName != user || !slices.Equal(request.Subject.Organization, []string{nodeidentity.Group}):
		return errors.New("its subject is not the node")
	case !slices.Equal(request.DNSNames, []string{node}):
		return fmt.Errorf("names %q", request.DNSNames)
	case len(request.IPAddresses) != 1 || !request.IPAddresses[0].Equal(address):
		return fmt.Errorf("addresses %v", request.IPAddresses)
	case len(request.EmailAddresses) > 0 || len(request.URIs) > 0:
		return errors.New("it names more than a node")
	}
	return nil
}
