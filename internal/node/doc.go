// Package node is the node agent: it registers this machine as a Kubernetes node and runs the pods bound to it in a
// sandbox (package sandbox). It does of a kubelet's work what runner pods need, under a node's own identity
// (system:node:NAME in group system:nodes, Node authorization, NodeRestriction).
//
// # What it supports
//
// Init containers and sidecars in order, then all containers at once; emptyDir, ConfigMap, Secret, downward API and projected
// volumes (service account tokens are renewed, everything else stays as it was when the pod started), owned as runAsUser and fsGroup
// say; env and envFrom with every kind of reference; subPath and subPathExpr; probes by exec, httpGet and tcpSocket; preStop hooks;
// termination messages; active deadlines; graceful deletion. Package test/kit/podconformance compares all of it with a kubelet.
// Whatever else a pod asks for is refused with a sentence in the container's waiting state, not ignored, except resources and
// security contexts, which are the sandbox's business. Logs and commands are served by package kubeletapi, beside the agent.
//
// No container is started twice. A pod whose restartPolicy demands a restart fails instead, and its ReplicaSet or Job makes another; a pod
// without an owner is not replaced.
//
// # How it is built
//
// Each pod has a worker, a goroutine of its own (NODE-6). A worker observes (the pod, the sandbox's state, running operations), asks
// decide, a pure function, what to do next, and starts that as an operation in the background; it never waits for one. The node's lease has
// a client of its own. All state that is not in the API server is in the sandbox: an agent that is killed and restarted finds everything
// there (NODE-3).
//
// Begin with Agent.Run in agent.go, then decide.go.
package node
