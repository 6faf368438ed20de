// Package letter encodes what a runner's pod and the controller exchange about a job's containers, where neither can connect to the other
// (NET-2): a Request leaves the pod in the termination message of a container, and a Delivery enters it in the arguments of another.
//
// Requests are compressed, and sealed to the controller's public key (HPKE, RFC 9180), because a pod's status is readable for all users who
// may read pods. Deliveries have no secrets. Everything that is decoded here was written by a job, or could have been.
package letter
