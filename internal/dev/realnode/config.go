package realnode

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Addresses of everything. Services have the control plane's range.
var (
	nodeRange = netip.MustParsePrefix("10.112.0.0/16")
	podRange  = netip.MustParsePrefix("10.113.0.0/16")
	gateway   = netip.MustParseAddr("10.112.0.1") // the switch's
	dnsServer = netip.MustParseAddr("10.111.0.10")
)

const (
	maxNodes      = 200
	apiPort       = 6443
	kubeletPort   = 10250
	clusterDomain = "cluster.local"
	pauseImage    = "bullpen.local/pause:1"
	corednsImage  = "bullpen.local/coredns:1"

	// Where a node finds its own directory and its programs, whatever they are called on the machine.
	insideState  = "/run/node"
	insideParts  = "/run/programs"
	runtimeSock  = "/run/containerd/containerd.sock"
	cniDirectory = insideState + "/cni"
)

// layout is where one node is among the others. index counts from 1.
type layout struct {
	index int
	name  string
	// cgroup is the parent of all cgroups of the node's pods, as a path within each hierarchy.
	cgroup string
	// cniPlugins is the directory of the CNI plug-ins.
	cniPlugins string
	// outside says that the gateway resolves the names of what is outside of the cluster.
	outside bool
	// shutdownGrace is NodeOptions.ShutdownGracePeriod.
	shutdownGrace time.Duration
}

func (l layout) address() netip.Addr {
	return netip.AddrFrom4([4]byte{10, 112, 0, byte(l.index + 1)})
}

func (l layout) pods() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 113, byte(l.index), 0}), 24)
}

// files are the node's configuration files, by their path in its directory.
func (l layout) files() (map[string]string, error) {
	files := map[string]string{
		"containerd.toml": l.containerd(),
		"resolv.conf":     l.resolvers(),
	}
	for name, value := range map[string]any{"kubelet.yaml": l.kubelet(), "kube-proxy.yaml": l.kubeProxy()} {
		text, err := yaml.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("encoding %s: %w", name, err)
		}
		files[name] = string(text)
	}
	text, err := json.MarshalIndent(l.cni(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the CNI configuration: %w", err)
	}
	files["cni/10-bridge.conflist"] = string(text)
	if l.shutdownGrace > 0 {
		files["dbus.conf"] = busConfig
		files["logind.conf.d/node.conf"] = l.logind()
	}
	return files, nil
}

func (l layout) resolvers() string {
	if l.outside {
		return "nameserver " + gateway.String() + "\n"
	}
	return "# A name outside of the cluster is not known on this node.\noptions timeout:1 attempts:1\n"
}

// containerd pins the sandbox image, which no registry has, and does not raise the OOM score of containers above what this process may.
func (l layout) containerd() string {
	return fmt.Sprintf(`version = 3
root = %[1]q
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs"]

[grpc]
  address = %[2]q

[plugins."io.containerd.internal.v1.opt"]
  path = %[3]q

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %[4]q
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = %[8]q

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%[5]q]
    conf_dir = %[6]q
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    BinaryName = %[7]q
    SystemdCgroup = false
`, insideState+"/containerd", runtimeSock, insideState+"/opt", pauseImage, l.cniPlugins, cniDirectory, insideParts+"/runc", insideState+"/registries")
}

func (l layout) kubelet() map[string]any {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": "0.0.0.0", "port": kubeletPort,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": insideState + "/pki/ca.crt"},
		},
		"authorization":               map[string]any{"mode": "Webhook"},
		"tlsCertFile":                 insideState + "/pki/serving.crt",
		"tlsPrivateKeyFile":           insideState + "/pki/serving.key",
		"clusterDomain":               clusterDomain,
		"clusterDNS":                  []string{dnsServer.String()},
		"containerRuntimeEndpoint":    "unix://" + runtimeSock,
		"imageServiceEndpoint":        "unix://" + runtimeSock,
		"cgroupDriver":                "cgroupfs",
		"cgroupRoot":                  l.cgroup,
		"failCgroupV1":                false,
		"protectKernelDefaults":       false,
		"failSwapOn":                  false,
		"resolvConf":                  insideState + "/resolv.conf",
		"podLogsDir":                  insideState + "/logs",
		"volumePluginDir":             insideState + "/volume-plugins",
		"imageGCHighThresholdPercent": 100, // the disk is the machine's: what fills it is not of this node
		"imageGCLowThresholdPercent":  99,
		"serializeImagePulls":         false,
		"podPidsLimit":                4096, // a job that starts processes without end leaves some to other pods
		"enforceNodeAllocatable":      []string{"pods"},
		"evictionHard":                map[string]string{},
		"nodeStatusUpdateFrequency":   "2s",
		"syncFrequency":               "10s",
		"logging":                     map[string]any{"verbosity": 2},
	}
	if l.shutdownGrace > 0 {
		config["shutdownGracePeriod"] = l.shutdownGrace.String()
	}
	return config
}

// kubeProxy leaves the machine-wide settings of connection tracking as they are.
func (l layout) kubeProxy() map[string]any {
	zero := "0s"
	return map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": "nftables", "clusterCIDR": podRange.String(), "detectLocalMode": "ClusterCIDR", "hostnameOverride": l.name,
		"clientConnection": map[string]any{"kubeconfig": insideState + "/kube-proxy.kubeconfig"},
		"conntrack": map[string]any{
			"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": zero, "tcpCloseWaitTimeout": zero, "udpTimeout": zero, "udpStreamTimeout": zero,
		},
		"nftables": map[string]any{"syncPeriod": "30s", "minSyncPeriod": "200ms"},
	}
}

func (l layout) cni() map[string]any {
	return map[string]any{
		"cniVersion": "1.0.0", "name": "pods",
		"plugins": []any{
			map[string]any{
				"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true, "ipMasq": false,
				"ipam": map[string]any{
					"type": "host-local", "dataDir": insideState + "/addresses",
					"ranges": []any{[]any{map[string]any{"subnet": l.pods().String()}}},
				},
			},
			map[string]any{"type": "portmap", "capabilities": map[string]any{"portMappings": true}, "snat": true},
		},
	}
}

// program is one of the node's, in the order in which they start. Those after the kubelet may start beside it.
type program struct {
	name string
	args []string // args[0] is the path in the node
}

// The names of the node's programs.
const (
	Containerd = "containerd"
	Kubelet    = "kubelet"
	KubeProxy  = "kube-proxy"
	KubeRouter = "kube-router"
	// These two run on a node with a ShutdownGracePeriod.
	DBus   = "dbus-daemon"
	Logind = "systemd-logind"
)

func (l layout) programs() []program {
	in := func(name string) string { return path.Join(insideState, name) }
	programs := []program{{Containerd, []string{path.Join(insideParts, "containerd"), "--config=" + in("containerd.toml"), "--log-level=info"}}}
	if l.shutdownGrace > 0 {
		programs = append(programs, program{DBus, []string{dbusProgram, "--config-file=" + in("dbus.conf"), "--nofork", "--nopidfile", "--nosyslog"}}, program{Logind, []string{logindProgram}})
	}
	return append(programs, []program{
		{Kubelet, []string{
			path.Join(insideParts, "kubelet"), "--config=" + in("kubelet.yaml"), "--kubeconfig=" + in("kubelet.kubeconfig"),
			"--hostname-override=" + l.name, "--node-ip=" + l.address().String(), "--root-dir=" + in("kubelet"),
		}},
		{KubeProxy, []string{path.Join(insideParts, "kube-proxy"), "--config=" + in("kube-proxy.yaml"), "--v=2"}},
		{KubeRouter, []string{
			path.Join(insideParts, "kube-router"), "--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--run-loadbalancer=false",
			"--enable-cni=false", "--hostname-override=" + l.name, "--kubeconfig=" + in("kube-router.kubeconfig"), "--v=1",
		}},
	}...)
}

// setup is what node-init does before anything runs. images keeps containerd's data; empty: it is within state. resolver is the file that the
// machine's /etc/resolv.conf is, when links are followed.
func (l layout) setup(state, parts, images, resolver string) setup {
	binds := []bind{{From: state, To: insideState}, {From: parts, To: insideParts}}
	if images != "" {
		binds = append(binds, bind{From: images, To: insideState + "/containerd"})
	}
	if l.shutdownGrace > 0 {
		binds = append(binds, bind{From: path.Join(state, "dbus"), To: path.Dir(busSocket)}, bind{From: path.Join(state, "logind.conf.d"), To: "/run/systemd/logind.conf.d"})
	}
	s := l.isolated(binds)
	if !l.outside {
		return s
	}
	// containerd resolves the names of registries as any program does. A resolver's file in /run is hidden by the node's own.
	if strings.HasPrefix(resolver, "/run/") {
		s.Binds = append(s.Binds, bind{From: path.Join(state, resolverDir), To: path.Dir(resolver)})
	} else {
		s.Files[resolver] = l.resolvers()
	}
	return s
}

// resolverDir is the directory, of the node's own, of a resolver's file that would be in /run.
const resolverDir = "resolver"

func (l layout) isolated(binds []bind) setup {
	return setup{
		Hostname: l.name,
		Tmpfs:    []string{"/run", "/tmp", "/var/lib", "/var/log"},
		Binds:    binds,
		// The kubelet sets these for the whole kernel; it finds them set.
		Files: map[string]string{
			"/proc/sys/vm/overcommit_memory":      "1\n",
			"/proc/sys/vm/panic_on_oom":           "0\n",
			"/proc/sys/kernel/panic":              "10\n",
			"/proc/sys/kernel/panic_on_oops":      "1\n",
			"/proc/sys/kernel/keys/root_maxkeys":  "1000000\n",
			"/proc/sys/kernel/keys/root_maxbytes": "25000000\n",
		},
		Writes: map[string]string{"/proc/sys/net/ipv4/ip_forward": "1"},
	}
}
