// Package ephemeral reads and makes the ephemeral containers of a runner's pod: those of its job, and the couriers that carry requests and
// responses. It is pure: everything that must be remembered between a request and its response is in the pod itself, so that a controller
// that dies loses nothing. Begin with Read.
//
// # Names
//
//	courier      the pod's own, an ordinary container: it carries the first request
//	courier-N    ephemeral, from 1: brings the response to what the one before it carried, and carries the next request
//	notice-N     ephemeral, from 1: brings news of containers that do not start, and carries nothing
//	ROLE-N-P     ephemeral: the container at position P of those of its role, of the request that was answered by courier-N
package ephemeral
