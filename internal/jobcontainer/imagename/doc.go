// Package imagename parses image names, and the patterns that a RunnerPool or a Runner permits (jobContainers). It does no I/O. Package runnerpod
// rejects invalid patterns with it before a pod is created, and package image resolves images by the same rules.
package imagename
