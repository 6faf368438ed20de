// Package buildkit runs the BuildKit daemon of a runner's pod: in the first process of its container, from the first use by a job to the
// end of the runner (JOB-2).
//
// The daemon takes its socket over from that process, as from systemd (sd_listen_fds(3)), and starts runc by the agent's own binary, which
// adds two options: the pod keeps the container runtime's default seccomp profile, which permits neither pivot_root nor keyctl.
package buildkit
