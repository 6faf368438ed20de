// Package identity gets a node agent a client certificate of its own, as a kubelet gets one: by a bootstrap token, which may
// do nothing but ask, a CertificateSigningRequest for the signer kubernetes.io/kube-apiserver-client-kubelet, and, long
// before it expires, another request, signed by the certificate itself. The API server's Node authorizer and NodeRestriction
// then confine the agent to its own node and the pods bound to it. No bearer token outlives the beginning.
//
// The work is done by client-go's certificate manager; what is here decides with what to ask, and waits for the first answer.
// It knows nothing of pods. Begin with Open.
package identity
