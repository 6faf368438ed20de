// Package serviceproxy makes Services reachable where no kube-proxy and no cluster DNS do: it listens at the address of
// each Service, passes TCP connections on to endpoints that are ready, and answers DNS queries for Services' names. Beside
// the pods of one machine (package test/kit/podnetwork) it is what an installation needs of a cluster's network.
//
// # What it supports
//
// Services with a cluster IP, over TCP; endpoints from EndpointSlices, ready ones, or, if there is none, those that still
// serve while they terminate, as kube-proxy has it. Without an endpoint, nothing listens. An address on this machine's
// loopback, which no EndpointSlice may hold, is given as an option. DNS is A records of those Services, over UDP.
// NetworkPolicies are not enforced.
//
// Begin with Proxy.Run in proxy.go; what goes where is a pure function in routes.go.
package serviceproxy
