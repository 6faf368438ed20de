package realnode

import (
	"github.com/stretchr/testify/require"
)

// requireDoctor runs the commands of docs/guides/doctor.md: each finds no problem. It also lists accounts, by a port-forward through the kubelet.
func (w *world) requireDoctor() {
	const healthy = "no problems found"
	inPod := w.run(`kubectl -n bullpen-system exec deploy/bullpen-server -- bullpen doctor --only github,database --github-app-id 1 \
      --github-private-key-file /etc/bullpen/github/private-key.pem --database-url-file /etc/bullpen/database/url`, "--github-url http://github."+outside+".svc")
	require.Contains(w, inPod, healthy)
	require.Contains(w, w.run("bullpen doctor --only cluster"), healthy)
	require.Contains(w, w.run("bullpen accounts list"), "acme")
}
