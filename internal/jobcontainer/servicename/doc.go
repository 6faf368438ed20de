// Package servicename finds the names of a job's services. GitHub's runner does not send them to a container hook
// (https://github.com/actions/runner/issues/2783), but its worker writes the message of the job into its log before it starts the
// job (Worker.cs). The log is not documented, so every name has a fallback: the base name of its image.
package servicename
