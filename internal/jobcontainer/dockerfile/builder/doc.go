// Package builder is how a job's hook asks for the container of an action that has a Dockerfile, and what it is answered.
package builder
