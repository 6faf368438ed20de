// Package podnetwork gives the pods of one Linux machine a network: a namespace and an address for each pod, and a range of
// addresses for Services that everything in it reaches. It needs root, and changes nothing of the machine's own network.
//
//	machine ─────────────────────────────────────────────────────────────
//	  node namespace    bridge 10.112.0.1/16      local 10.111.0.0/16 (Services)
//	    │ veth            │ veth
//	  pod 10.112.0.2    pod 10.112.0.3            default route: the bridge
//
// All lives in one namespace of the node's own, so that two nodes on one machine cannot meet, and nothing is left when the
// state directory's Network is destroyed. Pods reach each other and the Services' addresses, and nothing of the machine: what
// they need of it (the API server, a database) is listened
// for within it, by Network.Listen. Network.DialContext connects from there.
//
// Namespaces are kept by files in the state directory, and outlive the process that made them (NODE-3); they end with the machine.
//
// Begin with Network in network_linux.go.
package podnetwork
