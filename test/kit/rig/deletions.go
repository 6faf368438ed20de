package rig

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// beforeDeletion calls back before a pod's deletion is sent, and sends it only afterwards.
func beforeDeletion(tell func(name string, conditions *metav1.Preconditions)) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if verb, resource := parse(r); verb != "delete" || resource != "pods" {
				return next.RoundTrip(r)
			}
			var conditions *metav1.Preconditions
			if r.Body != nil {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				r = r.Clone(r.Context())
				r.Body = io.NopCloser(bytes.NewReader(body))
				decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // JSON or protobuf
				if err != nil {
					return nil, fmt.Errorf("reading the options of a deletion: %w", err)
				}
				if options, ok := decoded.(*metav1.DeleteOptions); ok {
					conditions = options.Preconditions
				}
			}
			tell(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], conditions)
			return next.RoundTrip(r)
		})
	}
}
