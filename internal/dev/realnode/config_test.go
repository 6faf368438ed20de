package realnode

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestLayout_NodesHaveAddressesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{gateway.String(): true}
	for index := 1; index <= maxNodes; index++ {
		l := layout{index: index}
		require.True(t, nodeRange.Contains(l.address()), index)
		require.True(t, podRange.Contains(l.pods().Addr()), index)
		for _, own := range []string{l.address().String(), l.pods().String()} {
			require.False(t, seen[own], own)
			seen[own] = true
		}
	}
}

// A node names no path of the machine but the CNI plug-ins': its own directory may be anywhere, under any name.
func TestLayout_FilesNameTheNodesOwnPaths(t *testing.T) {
	l := layout{index: 3, name: "three", cgroup: "/bullpen-x/three", cniPlugins: "/usr/lib/cni"}
	files, err := l.files()
	require.NoError(t, err)
	require.Len(t, files, 5)
	for name, text := range files {
		for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \"[],\n=:", r) }) {
			if !strings.HasPrefix(word, "/") || strings.HasPrefix(word, "//") {
				continue
			}
			require.True(t, strings.HasPrefix(word, "/run/") || word == l.cgroup || word == l.cniPlugins || word == "/24", "%s names %s", name, word)
		}
	}
	var kubelet map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(files["kubelet.yaml"]), &kubelet))
	require.Equal(t, "/bullpen-x/three", kubelet["cgroupRoot"])
	require.Equal(t, map[string]any{"enabled": false}, kubelet["authentication"].(map[string]any)["anonymous"])
	require.Contains(t, files["cni/10-bridge.conflist"], "10.113.3.0/24")
	require.Contains(t, files["containerd.toml"], `bin_dirs = ["/usr/lib/cni"]`)
}

func TestLayout_TheRuntimeStartsBeforeTheKubelet(t *testing.T) {
	var order []string
	for _, p := range (layout{index: 1, name: "one"}).programs() {
		order = append(order, p.name)
		require.True(t, strings.HasPrefix(p.args[0], insideParts+"/"))
	}
	require.Equal(t, []string{Containerd, Kubelet, KubeProxy, KubeRouter}, order)
}

// A node that shuts down has what the kubelet asks: D-Bus and systemd-logind before it, and a delay that is as long as the kubelet wants. The kubelet
// would otherwise write that setting into the machine's /etc.
func TestLayout_ANodeThatShutsDownHasLogind(t *testing.T) {
	plain, l := layout{index: 1, name: "one"}, layout{index: 1, name: "one", shutdownGrace: 90 * time.Second}
	files, err := l.files()
	require.NoError(t, err)
	require.Contains(t, files["kubelet.yaml"], "shutdownGracePeriod: 1m30s")
	require.Contains(t, files["logind.conf.d/node.conf"], "InhibitDelayMaxSec=91\n")
	var order []string
	for _, p := range l.programs() {
		order = append(order, p.name)
	}
	require.Equal(t, []string{Containerd, DBus, Logind, Kubelet, KubeProxy, KubeRouter}, order)
	require.Len(t, l.setup("/state", "/parts", "", "/etc/resolv.conf").Binds, len(plain.setup("/state", "/parts", "", "/etc/resolv.conf").Binds)+2)
	files, err = plain.files()
	require.NoError(t, err)
	require.NotContains(t, files["kubelet.yaml"], "shutdownGracePeriod")
}
