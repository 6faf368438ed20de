// Package chartjobs is what the Helm chart runs in the cluster beside its parts: a Job that brings the
// CustomResourceDefinitions up to date before an upgrade, one that drains the pools before an uninstallation, and the pod of
// `helm test`. It knows the cluster by client-go's dynamic client alone. Begin with drain.go.
package chartjobs
