package realnode

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
)

// readyPatience bounds the wait for a Node to be Ready once its programs are healthy.
const readyPatience = 2 * time.Minute

// addons are the API server's endpoint, DNS, and the rights of kube-router, whose user name has them rather than a ServiceAccount: it is no pod
// here.
//
//go:embed addons.yaml
var addons []byte

const policyEngineUser = "bullpen:kube-router"

func (c *Cluster) installAddons(ctx context.Context) error {
	command := exec.CommandContext(ctx, c.plane.Kubectl(), "--kubeconfig="+c.plane.AdminKubeconfig(), "apply", "--server-side", "--field-manager=bullpen-realnode", "-f", "-")
	command.Stdin = bytes.NewReader(c.addons())
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("installing DNS and the nodes' rights: %w: %s", err, output)
	}
	return nil
}

// addons are addons.yaml, with DNS that asks the machine's resolvers for other names where there is an outside.
func (c *Cluster) addons() []byte {
	if !c.opts.Outside {
		return addons
	}
	return bytes.Replace(addons, []byte("        cache 5\n"), []byte("        forward . /etc/resolv.conf\n        cache 5\n"), 1)
}

// identities writes what the programs of a node authenticate with.
func (c *Cluster) identities(l layout, dir string) error {
	for _, client := range []struct {
		file, user string
		groups     []string
	}{
		{Kubelet, "system:node:" + l.name, []string{"system:nodes"}},
		{KubeProxy, "system:kube-proxy", nil},
		{KubeRouter, policyEngineUser, nil},
	} {
		config, err := c.plane.Identity(client.user, client.groups...)
		if err != nil {
			return err
		}
		config.Host, config.ServerName = apiURL(), "kubernetes"
		if err := controlplane.WriteKubeconfig(filepath.Join(dir, client.file+".kubeconfig"), config); err != nil {
			return err
		}
	}
	authority, err := os.ReadFile(c.plane.ClientAuthority())
	if err != nil {
		return fmt.Errorf("reading the cluster's authority: %w", err)
	}
	cert, key, err := c.plane.ServingCertificate(l.name, l.address())
	if err != nil {
		return err
	}
	var errs []error
	for name, content := range map[string][]byte{"ca.crt": authority, "serving.crt": cert, "serving.key": key} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, "pki", name), content, 0o600))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("writing the kubelet's certificate: %w", err)
	}
	return nil
}

// waitReady returns when the Node is Ready, by a report of its kubelet that is not older than since: the API server remembers an earlier run.
func (c *Cluster) waitReady(ctx context.Context, name string, since time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyPatience, fmt.Errorf("node %s was not Ready within %s", name, readyPatience))
	defer cancel()
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
	seen := "it has not registered"
	for ctx.Err() == nil {
		events, err := c.kube.CoreV1().Nodes().Watch(ctx, options) // begins with what is there
		if err != nil {
			return fmt.Errorf("watching node %s: %w", name, err)
		}
		if ready, last := awaitIn(events, func(node *corev1.Node) (bool, string) { return readyNode(node, since) }); ready {
			return nil
		} else if last != "" {
			seen = last
		}
	}
	return fmt.Errorf("%w: %s", context.Cause(ctx), seen)
}

// readyNode says whether a Node is Ready, by a report since then. The API has times in whole seconds.
func readyNode(node *corev1.Node, since time.Time) (ready bool, why string) {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
			return false, "its kubelet has not reported since the start"
		}
		return condition.Status == corev1.ConditionTrue, condition.Message
	}
	return false, ""
}

// start is when the cluster was started, as the API writes times: in whole seconds.
func (c *Cluster) start() *metav1.Time { return &metav1.Time{Time: c.began.Truncate(time.Second)} }

// awaitIn reads until an object is as wanted, or the watch ends: then it returns why the last was not.
func awaitIn[T runtime.Object](events watch.Interface, wanted func(T) (is bool, why string)) (found bool, last string) {
	defer events.Stop()
	for event := range events.ResultChan() {
		object, is := event.Object.(T)
		if !is || event.Type == watch.Deleted {
			continue
		}
		if found, last = wanted(object); found {
			return true, ""
		}
	}
	return false, last
}

// waitDNS returns when a pod answers DNS queries. It may be on any node.
func (c *Cluster) waitDNS(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyPatience, fmt.Errorf("DNS was not ready within %s", readyPatience))
	defer cancel()
	for ctx.Err() == nil {
		events, err := c.kube.CoreV1().Pods(metav1.NamespaceSystem).Watch(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
		if err != nil {
			return fmt.Errorf("watching the pods of DNS: %w", err)
		}
		if ready, _ := awaitIn(events, c.readyPod); ready {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", context.Cause(ctx), c.describeDNS(context.WithoutCancel(ctx)))
}

// readyPod reports whether the pod's containers were started since the cluster's start, and are ready.
func (c *Cluster) readyPod(pod *corev1.Pod) (ready bool, why string) {
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if !status.Ready || status.State.Running == nil || status.State.Running.StartedAt.Before(c.start()) {
			return false, ""
		}
	}
	return len(pod.Status.ContainerStatuses) > 0, ""
}

// describeDNS says what its pods wait for.
func (c *Cluster) describeDNS(ctx context.Context) string {
	pods, err := c.kube.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	if err != nil {
		return err.Error()
	}
	if len(pods.Items) == 0 {
		return "it has no pod"
	}
	var all []string
	for i := range pods.Items {
		status := &pods.Items[i].Status
		said := fmt.Sprintf("pod %s is %s %s", pods.Items[i].Name, status.Phase, status.Message)
		for _, container := range status.ContainerStatuses {
			if waiting := container.State.Waiting; waiting != nil {
				said += fmt.Sprintf(", waiting: %s %s", waiting.Reason, waiting.Message)
			}
			said += fmt.Sprintf(", ready: %t, restarts: %d", container.Ready, container.RestartCount)
		}
		all = append(all, said)
	}
	return strings.Join(all, "; ")
}

// importImages gives the node what its pods need before any registry is asked.
func (n *Node) importImages(ctx context.Context) error {
	for _, image := range []Image{
		{Ref: pauseImage, Files: []File{{Path: "/pause", From: filepath.Join(n.parts, "pause")}}, Entrypoint: []string{"/pause"}, User: "65535:65535"},
		{Ref: corednsImage, Files: []File{{Path: "/coredns", From: filepath.Join(n.parts, "coredns")}}, Entrypoint: []string{"/coredns"}},
	} {
		var archive bytes.Buffer
		if err := image.Write(&archive); err != nil {
			return err
		}
		if err := n.Import(ctx, &archive); err != nil {
			return err
		}
	}
	return nil
}
