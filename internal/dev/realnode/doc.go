// Package realnode runs Kubernetes nodes on one Linux machine: a kubelet, containerd with runc, CNI plug-ins, kube-proxy and a NetworkPolicy
// engine, none of them ours, in namespaces of their own. It needs root, and changes nothing of the machine's own network, mounts or settings.
//
//	machine ──────────────────────────────────────────────────────────────────────────────
//	  control plane (127.0.0.1)          egress socket: the API server reaches nodes and pods
//	        ▲ forwarded                      │
//	  switch namespace   bridge 10.112.0.1/16, routes 10.113.N.0/24 → node N
//	        │ veth                       │ veth
//	  node 1  10.112.0.2                 node 2  10.112.0.3
//	    pods  10.113.1.0/24                pods  10.113.2.0/24
//
// A node is one PID, mount, network, UTS and IPC namespace, whose first process is node-init (devcluster/node/init). When that process ends,
// the kernel kills all that runs on the node; what remains are its cgroups and its directory, which Stop and the next start remove. Nothing
// of a node reaches the machine's network: what pods need of it is listened for in the switch namespace (Cluster.Listen, Cluster.Forward), and with
// Options.Outside every TCP connection that leaves is made again from the machine.
//
//   - cluster_linux.go: a Cluster, the control plane with the switch namespace, its forwarders, DNS and policy engine's rights
//   - node_linux.go: a Node and its programs; control.go speaks to node-init
//   - config.go: the files and arguments of the programs, as pure functions
//   - requirements_linux.go: what the machine lacks, one line each
//   - outside_linux.go: the way out; remains_linux.go: what a killed run left
//   - runtime_linux.go, archive.go: images of a node, also of another process's; what an archive of images has
//   - image.go: images packed of programs of this machine
//
// Begin with Start.
package realnode
