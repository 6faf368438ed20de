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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
)

// readyPatience bounds the wait for a Node to be Ready once its programs are healthy.
const readyPatience = 60 * time.Second

// addons are the API server's endpoint, DNS, and the rights of kube-router, whose user name has them rather than a ServiceAccount: it is no pod
// here.
//
//go:embed addons.yaml
var addons []byte

const policyEngineUser = "bullpen:kube-router"

func (c *Cluster) installAddons(ctx context.Context) error {
	command := exec.CommandContext(ctx, c.plane.Kubectl(), "--kubeconfig="+c.plane.AdminKubeconfig(), "apply", "--server-side", "--field-manager=bullpen-realnode", "-f", "-")
	command.Stdin = bytes.NewReader(addons)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("installing DNS and the nodes' rights: %w: %s", err, output)
	}
	return nil
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

// waitReady returns when the Node is Ready, by a report of its kubelet that is not older than since.
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
		if ready, last := readyIn(events, since); ready {
			return nil
		} else if last != "" {
			seen = last
		}
	}
	return fmt.Errorf("%w: %s", context.Cause(ctx), seen)
}

// readyIn reads until the Node is Ready, or the watch ends. The API has times in whole seconds.
func readyIn(events watch.Interface, since time.Time) (ready bool, last string) {
	defer events.Stop()
	for event := range events.ResultChan() {
		node, is := event.Object.(*corev1.Node)
		if !is || event.Type == watch.Deleted {
			continue
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type != corev1.NodeReady {
				continue
			}
			if condition.LastHeartbeatTime.Time.Before(since.Truncate(time.Second)) {
				last = "the kubelet has not reported since its start"
				continue
			}
			if condition.Status == corev1.ConditionTrue {
				return true, ""
			}
			last = condition.Message
		}
	}
	return false, last
}

// waitDNS returns when a pod answers DNS queries. It may be on any node.
func (c *Cluster) waitDNS(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyPatience, fmt.Errorf("DNS was not ready within %s", readyPatience))
	defer cancel()
	for ctx.Err() == nil {
		events, err := c.kube.AppsV1().Deployments(metav1.NamespaceSystem).Watch(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, "coredns").String(),
		})
		if err != nil {
			return fmt.Errorf("watching the deployment of DNS: %w", err)
		}
		if available(events) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", context.Cause(ctx), c.describeDNS(context.WithoutCancel(ctx)))
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

func available(events watch.Interface) bool {
	defer events.Stop()
	for event := range events.ResultChan() {
		if d, is := event.Object.(*appsv1.Deployment); is && d.Status.AvailableReplicas > 0 {
			return true
		}
	}
	return false
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
