// Package podenv names what the pod template and the agent in the pod agree on: environment variables, and files of the shared volume.
//
// The agent's binary knows these names without Kubernetes' API types. Package runnerpod has them under the
// same names for everything else.
package podenv
