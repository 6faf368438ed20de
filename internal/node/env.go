package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// references reads what pods refer to. A node may read only what pods bound to it name.
type references interface {
	// Secret and ConfigMap pass on the API server's errors.
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
}

// resolver turns a container's specification into what a sandbox starts.
type resolver struct {
	refs    references
	machine machine
	// volume is the host directory of one of the pod's volumes.
	volume func(name string) string
}

// container resolves everything. Objects that are missing in the cluster may be created later: every error may be retried.
func (r resolver) container(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (sandbox.Container, error) {
	env, err := r.env(ctx, pod, c)
	if err != nil {
		return sandbox.Container{}, err
	}
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	out := sandbox.Container{
		Name: c.Name, Image: c.Image, Env: env, WorkingDir: c.WorkingDir, Resources: c.Resources, Security: security(pod, c),
	}
	for _, arg := range slices.Concat(c.Command, c.Args) {
		out.Command = append(out.Command, expand(arg, lookup))
	}
	for _, m := range c.VolumeMounts {
		mount, err := r.mount(pod, m, lookup)
		if err != nil {
			return out, err
		}
		out.Mounts = append(out.Mounts, mount)
	}
	return out, nil
}

// env resolves envFrom, then env in order: a value may refer to what comes before it.
func (r resolver) env(ctx context.Context, pod *corev1.Pod, c *corev1.Container) ([]sandbox.EnvVar, error) {
	var env []sandbox.EnvVar
	values := map[string]string{}
	add := func(name, value string) {
		env = append(env, sandbox.EnvVar{Name: name, Value: value})
		values[name] = value
	}
	if api := r.machine.APIService; api.IsValid() {
		add("KUBERNETES_SERVICE_HOST", api.Addr().String())
		add("KUBERNETES_SERVICE_PORT", strconv.Itoa(int(api.Port())))
	}
	for _, from := range c.EnvFrom {
		data, err := r.envFrom(ctx, pod.Namespace, from)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			add(from.Prefix+key, data[key])
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			add(e.Name, expand(e.Value, func(name string) (string, bool) { v, ok := values[name]; return v, ok }))
			continue
		}
		value, found, err := r.valueFrom(ctx, pod, c, e.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", e.Name, err)
		}
		if found {
			add(e.Name, value)
		}
	}
	return env, nil
}

func (r resolver) envFrom(ctx context.Context, namespace string, from corev1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		cm, err := r.configMap(ctx, namespace, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if cm == nil {
			return nil, err
		}
		return cm.Data, nil
	case from.SecretRef != nil:
		secret, err := r.secret(ctx, namespace, from.SecretRef.Name, from.SecretRef.Optional)
		if secret == nil {
			return nil, err
		}
		data := map[string]string{}
		for k, v := range secret.Data {
			data[k] = string(v)
		}
		return data, nil
	}
	return nil, nil
}

// valueFrom evaluates one reference; false for an optional one that is not there.
func (r resolver) valueFrom(ctx context.Context, pod *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		value, err := fieldValue(pod, r.machine, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		of, err := containerOf(pod, c, from.ResourceFieldRef.ContainerName)
		if err != nil {
			return "", false, err
		}
		value, err := resourceValue(of, r.machine, from.ResourceFieldRef)
		return value, true, err
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret, err := r.secret(ctx, pod.Namespace, ref.Name, ref.Optional)
		if secret == nil {
			return "", false, err
		}
		value, ok := secret.Data[ref.Key]
		return string(value), ok, keyError(ok, ref.Optional, "Secret", ref.Name, ref.Key)
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := r.configMap(ctx, pod.Namespace, ref.Name, ref.Optional)
		if cm == nil {
			return "", false, err
		}
		value, ok := cm.Data[ref.Key]
		return value, ok, keyError(ok, ref.Optional, "ConfigMap", ref.Name, ref.Key)
	}
	return "", false, fmt.Errorf("this kind of reference is not supported")
}

func keyError(found bool, optional *bool, kind, name, key string) error {
	if found || optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %q has no key %q", kind, name, key)
}

func containerOf(pod *corev1.Pod, self *corev1.Container, name string) (*corev1.Container, error) {
	if name == "" && self != nil {
		return self, nil
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return &pod.Spec.InitContainers[i], nil
		}
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i], nil
		}
	}
	return nil, fmt.Errorf("container %q not found", name)
}

// secret reads a Secret: nil without an error when it is optional and not there.
func (r resolver) secret(ctx context.Context, namespace, name string, optional *bool) (*corev1.Secret, error) {
	s, err := r.refs.Secret(ctx, namespace, name)
	if err != nil {
		return nil, absent(err, optional, "Secret", name)
	}
	return s, nil
}

// configMap is secret for ConfigMaps.
func (r resolver) configMap(ctx context.Context, namespace, name string, optional *bool) (*corev1.ConfigMap, error) {
	cm, err := r.refs.ConfigMap(ctx, namespace, name)
	if err != nil {
		return nil, absent(err, optional, "ConfigMap", name)
	}
	return cm, nil
}

func absent(err error, optional *bool, kind, name string) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("reading %s %q: %w", kind, name, err)
}
