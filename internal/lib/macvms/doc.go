// Package macvms counts the virtual machines of a Mac among its processes, regardless of who started them: Tart lists those of one user only, and may
// call a running one stopped.
package macvms
