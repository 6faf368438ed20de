package machost

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/machost"
)

// wanted is the desired state of a host, and how to reach it.
type wanted struct {
	Request Request
	// Hash is over all of it but the secrets themselves, of which the versions are in it: a hash of a password could be guessed at.
	Hash string
	// Account and Identity are the hashes of what a refused password, and a host key, belong to.
	Account, Identity string
}

// want reads the desired state of a host. A problem needs an administrator.
func (r *Reconciler) want(ctx context.Context, host *v1alpha1.MacHost) (wanted, *problem, error) {
	config, wrong, err := r.config(ctx, host)
	if err != nil || wrong != nil {
		return wanted{}, wrong, err
	}
	spec := &host.Spec
	w := wanted{Request: Request{
		Address: addressOf(host), User: cmp.Or(spec.User, config.User),
		HostKey: cmp.Or(spec.HostKey, host.Status.HostKey), Config: config,
	}}
	if spec.PasswordSecretRef != nil && w.Request.User != config.User {
		return wanted{}, &problem{StateInvalid, fmt.Sprintf("spec.user is %s, but the configuration's user is %s, and there is one password: remove spec.user or spec.passwordSecretRef", w.Request.User, config.User)}, nil
	}
	versions, wrong, err := r.readSecrets(ctx, host, &w.Request)
	if err != nil || wrong != nil {
		return wanted{}, wrong, err
	}
	w.Account = hashOf("password", w.Request.Address, w.Request.User, versions["password"])
	w.Identity = hashOf("host key", w.Request.Address, spec.HostKey)
	text, err := json.Marshal(config)
	if err != nil {
		return wanted{}, nil, fmt.Errorf("encoding the configuration of %s: %w", host.Name, err)
	}
	w.Hash = hashOf(r.options.BinarySHA256, string(text), w.Request.Address, w.Request.User, spec.HostKey,
		versions["key"], versions["password"], versions["kubeconfig"], host.Annotations[v1alpha1.AnnotationReapply])
	return w, nil, nil
}

func hashOf(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d %s\n", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))[:32]
}

// readSecrets puts the secrets into the request, and returns the versions that they are of.
func (r *Reconciler) readSecrets(ctx context.Context, host *v1alpha1.MacHost, request *Request) (map[string]string, *problem, error) {
	versions := map[string]string{}
	key, wrong, err := r.secrets.get(ctx, host.Spec.SSHKeySecretRef)
	if err != nil || wrong != nil {
		return nil, wrong, err
	}
	if err := r.options.Bootstrapper.CheckKey(key.Secret); err != nil {
		return nil, &problem{StateInvalid, fmt.Sprintf("the key %s of the Secret %s cannot be used to log in: %v", host.Spec.SSHKeySecretRef.Key, host.Spec.SSHKeySecretRef.Name, err)}, nil
	}
	request.Key, versions["key"] = key.Secret, key.Version
	if ref := host.Spec.PasswordSecretRef; ref != nil {
		password, wrong, err := r.secrets.get(ctx, *ref)
		if err != nil || wrong != nil {
			return nil, wrong, err
		}
		request.Secrets.Password, versions["password"] = password.Secret, password.Version
	}
	if ref := host.Spec.BootstrapKubeconfigSecretRef; ref != nil {
		kubeconfig, wrong, err := r.secrets.get(ctx, *ref)
		switch {
		case err != nil:
			return nil, nil, err
		case wrong != nil && host.Status.AppliedHash == "":
			return nil, wrong, nil
		case wrong == nil:
			if !isKubeconfig(kubeconfig.Secret) {
				return nil, &problem{StateInvalid, fmt.Sprintf("the key %s of the Secret %s is not a kubeconfig", ref.Key, ref.Name)}, nil
			}
			request.Secrets.BootstrapKubeconfig, versions["kubeconfig"] = kubeconfig.Secret, kubeconfig.Version
		}
	}
	return versions, nil, nil
}

// isKubeconfig reports whether a text is one that a node agent could use. A user who may write MacHosts names both the Secret and the
// address that it is sent to: a private key must not get there under another name. The reason of a refusal is not reported, as it may quote
// the text (HOST-6).
func isKubeconfig(text machost.Secret) bool {
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text.Reveal()))
	return err == nil && config.Host != ""
}

// config is the configuration with what is this host's own.
func (r *Reconciler) config(ctx context.Context, host *v1alpha1.MacHost) (machost.Config, *problem, error) {
	text, where, wrong, err := r.configText(ctx, host)
	if err != nil || wrong != nil {
		return machost.Config{}, wrong, err
	}
	config, err := machost.ParseConfig(text)
	if err != nil {
		return config, &problem{StateInvalid, fmt.Sprintf("%s: %v", where, err)}, nil
	}
	for _, own := range []struct{ is, field, instead string }{
		{config.Hostname, "hostname", "spec.hostname"}, {config.Node.Name, "node.name", "spec.nodeName"}, {config.Node.IP, "node.ip", "spec.nodeIP"},
		{config.Node.Labels[v1alpha1.LabelMacPool], "the label " + v1alpha1.LabelMacPool, "spec.pool"},
		{config.Node.Labels[v1alpha1.LabelMacAddress], "the label " + v1alpha1.LabelMacAddress, "spec.address"},
	} {
		if own.is != "" {
			return config, &problem{StateInvalid, fmt.Sprintf("%s: %s differs per Mac: remove it, and set %s of the MacHost", where, own.field, own.instead)}, nil
		}
	}
	config.Hostname = cmp.Or(host.Spec.Hostname, host.Name)
	config.Node.Name, config.Node.IP = nodeNameOf(host), host.Spec.NodeIP
	labels := map[string]string{}
	maps.Copy(labels, config.Node.Labels)
	labels[v1alpha1.LabelMacAddress] = addressLabel(host)
	if host.Spec.Pool != "" {
		labels[v1alpha1.LabelMacPool] = host.Spec.Pool
	}
	config.Node.Labels = labels
	config = config.Default()
	if err := config.Validate(); err != nil {
		return config, &problem{StateInvalid, fmt.Sprintf("%s: %v", where, err)}, nil
	}
	return config, nil, nil
}

func (r *Reconciler) configText(ctx context.Context, host *v1alpha1.MacHost) (text []byte, where string, _ *problem, _ error) {
	ref := host.Spec.ConfigRef
	if ref == nil {
		if host.Spec.Config == nil {
			return nil, "", &problem{StateInvalid, "set spec.configRef or spec.config"}, nil
		}
		return host.Spec.Config.Raw, "spec.config", nil, nil
	}
	key := cmp.Or(ref.Key, "host.yaml")
	where = fmt.Sprintf("ConfigMap %s, %s", ref.Name, key)
	var from corev1.ConfigMap
	err := r.client.Get(ctx, types.NamespacedName{Namespace: host.Namespace, Name: ref.Name}, &from)
	if apierrors.IsNotFound(err) {
		return nil, where, &problem{StateInvalid, fmt.Sprintf("the ConfigMap %s in namespace %s does not exist: create it", ref.Name, host.Namespace)}, nil
	}
	if err != nil {
		return nil, where, nil, fmt.Errorf("reading the ConfigMap %s: %w", ref.Name, err)
	}
	content, has := from.Data[key]
	if !has {
		return nil, where, &problem{StateInvalid, fmt.Sprintf("the ConfigMap %s has no key %s: add it", ref.Name, key)}, nil
	}
	return []byte(content), where, nil, nil
}

// addressOf is where a host's SSH server listens.
func addressOf(host *v1alpha1.MacHost) string {
	return net.JoinHostPort(host.Spec.Address, strconv.Itoa(int(cmp.Or(host.Spec.Port, 22))))
}

// addressLabel is the value of LabelMacAddress. An address has characters that a label may not have.
func addressLabel(host *v1alpha1.MacHost) string { return hashOf("address", addressOf(host)) }

// nodeNameOf is the name of a host's Node.
func nodeNameOf(host *v1alpha1.MacHost) string { return cmp.Or(host.Spec.NodeName, host.Name) }
