// Package imagename reads names of images, and what a pool or a Runner permits of them (spec.template.jobContainers of a RunnerPool). It is pure: who
// builds pods refuses patterns that permit nothing, and package image, which asks registries, goes by the same reading.
package imagename
