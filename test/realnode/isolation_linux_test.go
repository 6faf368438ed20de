package realnode

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Ports of a server: that of webhooks is open to all, because their signature is verified; runners without a job poll the one of dispatch.
const (
	webhooksPort = 8080
	dispatchPort = 8081
)

// echoPort is where datagrams are answered, at a public address, at a private one, and at that of clouds' metadata services.
const echoPort = 9053

var metadataAt = netip.MustParseAddr("169.254.169.254")

// askScript tries each destination, and says which of them answered: a TCP connection that is accepted, or a datagram that comes back. DNS is asked for
// a name, by UDP.
// It reads one byte: read asks the kernel for single bytes, and the first of them takes the whole datagram.
const askScript = `for at in %s; do
  to=/dev/${at%%:*}/${at##*:}
  if [[ $at == udp/* ]]; then try="exec 3<>$to; for n in 1 2 3; do echo ask >&3; read -r -n 1 -t 5 word <&3 && exit 0; done; exit 1"; else try="exec 3<>$to"; fi
  if timeout 15 bash -c "$try" 2>/dev/null; then echo "reach $at open"; else echo "reach $at closed"; fi
done
if getent hosts github.outside.svc.cluster.local >/dev/null; then echo "reach dns open"; else echo "reach dns closed"; fi
`

// destinations are what is tried, by who reaches it.
type destinations struct {
	job      []string // and all others: GitHub and other hosts of the internet, and DNS
	idle     []string // runners without a job
	stranger []string // a pod that no policy selects
	nobody   []string // only their own clients, none of which is tried
}

func (d destinations) all() []string {
	return slices.DeleteFunc(slices.Concat(d.job, d.idle, d.stranger, d.nobody), func(at string) bool { return at == "dns" })
}

// requireIsolation has a runner without a job, a job, and a pod that no policy selects try what the page on networks says of each
// (docs/guides/network.md). So what is closed for the job is known to be open otherwise.
func (w *world) requireIsolation() {
	w.echoAll()
	d := w.destinations()
	require.ElementsMatch(w, slices.Concat(d.job, d.stranger), w.reached(w.runStranger("stranger", d)), "what a pod without a policy reaches")
	require.ElementsMatch(w, slices.Concat(d.job, d.idle), w.reached(w.askFromIdle(d)), "what a runner without a job reaches")
	require.ElementsMatch(w, d.job, w.reached(w.askFromJob("isolation", d)), "what a job reaches")
}

// destinations of the cluster as it is now: the API server, by its Service and by the machine's address, the kubelet, and every port of servers and
// controllers.
func (w *world) destinations() destinations {
	udp := func(at netip.Addr) string { return "udp/" + netip.AddrPortFrom(at, echoPort).String() }
	d := destinations{
		job:      []string{"tcp/" + net.JoinHostPort(githubAt.String(), "80"), udp(githubAt), "dns"},
		stranger: []string{"tcp/10.111.0.1:443", "tcp/10.112.0.1:6443", "tcp/10.112.0.2:10250", udp(realnode.Gateway()), udp(metadataAt)},
	}
	pods, err := w.kube.CoreV1().Pods(systemNamespace).List(w.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component in (server, controller)"})
	require.NoError(w, err)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				at := "tcp/" + net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(port.ContainerPort))
				switch server := pod.Labels["app.kubernetes.io/component"] == "server"; {
				case server && port.ContainerPort == webhooksPort:
					d.stranger = append(d.stranger, at)
				case server && port.ContainerPort == dispatchPort:
					d.idle = append(d.idle, at)
				default:
					d.nobody = append(d.nobody, at)
				}
			}
		}
	}
	require.NotEmpty(w, d.idle)
	require.NotEmpty(w, d.nobody)
	return d
}

// echoAll answers datagrams at each address for them, until the phase ends.
func (w *world) echoAll() {
	require.NoError(w, w.cluster.Address(metadataAt))
	for _, at := range []netip.Addr{githubAt, realnode.Gateway(), metadataAt} {
		w.echo(netip.AddrPortFrom(at, echoPort))
	}
}

// echo sends datagrams back to pods, until the phase ends.
func (w *world) echo(at netip.AddrPort) {
	conn, err := w.cluster.ListenPacket(w.Context(), at)
	require.NoError(w, err)
	w.background(func(ctx context.Context) {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		datagram := make([]byte, 64)
		for {
			n, from, err := conn.ReadFrom(datagram)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(datagram[:n], from) // the client asks again
		}
	})
}

func ask(d destinations) string { return fmt.Sprintf(askScript, strings.Join(d.all(), " ")) }

// runStranger has a pod of a namespace without policies try, and returns what it says.
func (w *world) runStranger(name string, d destinations) string {
	pod, err := w.kube.CoreV1().Pods(outside).Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "main", Image: runnerRef, Command: []string{"/bin/bash", "-c", ask(d)},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.eventually("the stranger has tried", func() bool {
		now, err := w.kube.CoreV1().Pods(outside).Get(w.Context(), pod.Name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.PodSucceeded
	})
	said, err := w.kube.CoreV1().Pods(outside).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(w.Context())
	require.NoError(w, err)
	return string(said)
}

func (w *world) askFromIdle(d destinations) string {
	idle := w.await("an idle runner", isIdle)
	said, err := w.kubectl("--namespace="+runnersNamespace, "exec", idle.Name, "--container="+runnerpod.ContainerRunner, "--", "/bin/bash", "-c", ask(d))
	require.NoError(w, err, said)
	return said
}

// askFromJob has a job try, and returns its log.
func (w *world) askFromJob(name string, d destinations) string {
	return w.askFrom(name, "runs-on: bullpen", ask(d))
}

// askFrom has a job run a script, and returns its log. settings are lines of the job.
func (w *world) askFrom(name, settings, script string) string {
	indented := "          " + strings.ReplaceAll(strings.TrimSpace(script), "\n", "\n          ")
	before := w.unfinished()
	w.submit(name+".yaml", "name: isolation\non: [workflow_dispatch]\njobs:\n  "+name+":\n    "+settings+"\n    steps:\n      - shell: bash\n        run: |\n"+indented+"\n", 1)
	w.awaitJobs("a job that tries what it may not reach", before)
	for _, job := range w.jobs() {
		if job.Key != name {
			continue
		}
		said, err := w.github.Admin.JobLog(w.Context(), job.ID)
		require.NoError(w, err)
		return said
	}
	w.Fatal("the job is not listed")
	return ""
}

// reached are the destinations that were open, of a script's output.
func (w *world) reached(said string) []string {
	w.Helper()
	var open []string
	tried := 0
	for line := range strings.SplitSeq(said, "\n") {
		_, result, found := strings.Cut(line, "reach ")
		if !found {
			continue
		}
		tried++
		if at, is := strings.CutSuffix(strings.TrimSpace(result), " open"); is {
			open = append(open, at)
		}
	}
	require.Positive(w, tried, said)
	return open
}
