// Package identity obtains a client certificate for a node agent, as a kubelet obtains one: by a bootstrap token, which may only request
// it, a CertificateSigningRequest for the signer kubernetes.io/kube-apiserver-client-kubelet, and, long before it expires, another request,
// signed by the certificate itself. The API server's Node authorizer and NodeRestriction then confine the agent to its own node and the
// pods bound to it. No bearer token is needed after the start.
//
// The work is done by client-go's certificate manager; this package chooses its credentials, and waits for the first certificate. It knows
// nothing of pods. Begin with Open.
package identity
