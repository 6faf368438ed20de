// Package image resolves the images of a job's containers before its pod is changed: a name that a workflow chose becomes a
// reference with a digest, and what the image says about how to run it (jobcontainer.ImageConfig). So the kubelet is never given
// an image that does not exist, that it may not read, that has another platform, or whose registry does not respond
// (docs/adr/0063-images-are-resolved-before-the-pod-is-changed.md).
//
// The names come from workflows, so every registry is treated as hostile: addresses are checked when a connection is made
// (address.go), and bytes, requests, redirects, time and concurrency are limited (exchange.go, slots.go). All decisions are pure
// functions of values; resolver.go and exchange.go do the requests.
//
// Begin with Resolver.Resolve. DockerConfigJSON makes the content of the Secret that the kubelet pulls with. Only the controller
// uses this package.
package image
