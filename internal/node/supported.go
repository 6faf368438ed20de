package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// supported says what of a pod's specification cannot be done here, as an *sandbox.InvalidError, or nil.
func supported(pod *corev1.Pod) error {
	for i, v := range pod.Spec.Volumes {
		if err := supportedVolume(fmt.Sprintf("spec.volumes[%d]", i), v); err != nil {
			return err
		}
	}
	for i := range pod.Spec.InitContainers {
		c, field := &pod.Spec.InitContainers[i], fmt.Sprintf("spec.initContainers[%d]", i)
		if c.RestartPolicy != nil && !isSidecar(c) {
			return refuse(field+".restartPolicy", "init container %q has a restartPolicy other than Always: the Bullpen node agent does not support it", c.Name)
		}
		if err := supportedContainer(field, c); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		c, field := &pod.Spec.Containers[i], fmt.Sprintf("spec.containers[%d]", i)
		if c.RestartPolicy != nil {
			return refuse(field+".restartPolicy", "container %q has a restartPolicy of its own: the Bullpen node agent does not support it", c.Name)
		}
		if err := supportedContainer(field, c); err != nil {
			return err
		}
	}
	return nil
}

func supportedContainer(field string, c *corev1.Container) error {
	for _, probe := range []struct {
		name string
		is   *corev1.Probe
	}{{"readinessProbe", c.ReadinessProbe}, {"livenessProbe", c.LivenessProbe}, {"startupProbe", c.StartupProbe}} {
		if !supportedProbe(probe.is) {
			return refuse(field+"."+probe.name, "container %q has a probe that is none of exec, tcpSocket and httpGet (over http, at the pod's own address): the Bullpen node agent supports no other", c.Name)
		}
	}
	switch {
	case c.Lifecycle != nil && !supportedHooks(c.Lifecycle):
		return refuse(field+".lifecycle", "container %q has a lifecycle hook other than a preStop sleep, command or httpGet (over http, at the pod's own "+
			"address): the Bullpen node agent does not support it", c.Name)
	case len(c.VolumeDevices) > 0:
		return refuse(field+".volumeDevices", "container %q has volumeDevices: the Bullpen node agent does not support them", c.Name)
	}
	return nil
}

func supportedProbe(p *corev1.Probe) bool {
	switch {
	case p == nil || p.Exec != nil:
		return true
	case p.TCPSocket != nil:
		return p.TCPSocket.Host == ""
	}
	return supportedGet(p.HTTPGet)
}

func supportedHooks(l *corev1.Lifecycle) bool {
	stop := l.PreStop
	return l.PostStart == nil && (stop == nil || stop.Sleep != nil || stop.Exec != nil || supportedGet(stop.HTTPGet))
}

func supportedGet(get *corev1.HTTPGetAction) bool {
	return get != nil && get.Scheme != corev1.URISchemeHTTPS && get.Host == ""
}

func supportedVolume(field string, v corev1.Volume) error {
	switch {
	case v.EmptyDir != nil, v.Secret != nil, v.ConfigMap != nil, v.DownwardAPI != nil:
		return nil
	case v.Projected != nil:
		for i, s := range v.Projected.Sources {
			if s.Secret == nil && s.ConfigMap == nil && s.DownwardAPI == nil && s.ServiceAccountToken == nil {
				return refuse(fmt.Sprintf("%s.projected.sources[%d]", field, i), "volume %q projects something other than a token, Secret, ConfigMap or downward API: not supported by the Bullpen node agent", v.Name)
			}
		}
		return nil
	}
	return refuse(field, "volume %q is of a kind that the Bullpen node agent does not support: use emptyDir, configMap, secret, downwardAPI or projected", v.Name)
}

// refuse names the field that cannot be had, and says why.
func refuse(field, format string, args ...any) error {
	return &sandbox.InvalidError{Reason: sandbox.ReasonConfigError, Message: field + ": " + fmt.Sprintf(format, args...)}
}
