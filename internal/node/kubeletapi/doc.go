// Package kubeletapi serves the part of a kubelet's API that kubectl's users expect of a node: logs and exec, which come through the API
// server, and healthz, metrics and pods for monitoring.
//
// A client is authenticated by a client certificate or a bearer token (TokenReview), and authorized by SubjectAccessReviews on the node's
// subresources, as at a kubelet; requests without credentials are rejected. A pod's token for another audience, such as the one that runner
// pods poll with, is not valid here.
//
// Streams are SPDY (what API servers speak to nodes, whatever kubectl speaks to them) or WebSocket up to v4.channel.k8s.io. The
// newer v5.channel.k8s.io ends at the API server, which speaks it to nodes only that declare so.
//
// Begin with New in server.go.
package kubeletapi
