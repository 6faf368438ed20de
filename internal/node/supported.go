package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// supported says what of a pod's specification cannot be done here, as an *sandbox.InvalidError, or nil.
func supported(pod *corev1.Pod) error {
	for _, v := range pod.Spec.Volumes {
		if err := supportedVolume(v); err != nil {
			return err
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil {
			return refuse("init container %q has a restartPolicy: sidecars are not supported by the Bullpen node agent", c.Name)
		}
		if err := supportedContainer(c); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		if err := supportedContainer(&pod.Spec.Containers[i]); err != nil {
			return err
		}
	}
	return nil
}

func supportedContainer(c *corev1.Container) error {
	switch {
	case !supportedProbe(c.ReadinessProbe), !supportedProbe(c.LivenessProbe), !supportedProbe(c.StartupProbe):
		return refuse("container %q has a probe that is neither exec nor httpGet (over http, at the pod's own address): the Bullpen node agent supports no other", c.Name)
	case c.Lifecycle != nil && (c.Lifecycle.PostStart != nil || c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep == nil):
		return refuse("container %q has a lifecycle hook other than a preStop sleep: the Bullpen node agent does not support it", c.Name)
	case len(c.VolumeDevices) > 0:
		return refuse("container %q has volumeDevices: the Bullpen node agent does not support them", c.Name)
	}
	for _, m := range c.VolumeMounts {
		if m.SubPathExpr != "" {
			return refuse("container %q uses subPathExpr: the Bullpen node agent supports subPath only", c.Name)
		}
	}
	return nil
}

func supportedProbe(p *corev1.Probe) bool {
	if p == nil || p.Exec != nil {
		return true
	}
	return p.HTTPGet != nil && p.HTTPGet.Scheme != corev1.URISchemeHTTPS && p.HTTPGet.Host == ""
}

func supportedVolume(v corev1.Volume) error {
	switch {
	case v.EmptyDir != nil, v.Secret != nil, v.ConfigMap != nil, v.DownwardAPI != nil:
		return nil
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.Secret == nil && s.ConfigMap == nil && s.DownwardAPI == nil && s.ServiceAccountToken == nil {
				return refuse("volume %q projects something other than a token, Secret, ConfigMap or downward API: not supported by the Bullpen node agent", v.Name)
			}
		}
		return nil
	}
	return refuse("volume %q is of a kind that the Bullpen node agent does not support: use emptyDir, configMap, secret, downwardAPI or projected", v.Name)
}

func refuse(format string, args ...any) error {
	return &sandbox.InvalidError{Reason: sandbox.ReasonConfigError, Message: fmt.Sprintf(format, args...)}
}
