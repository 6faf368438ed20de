package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// tokenSource makes tokens of the pod's own ServiceAccount, bound to the pod.
type tokenSource interface {
	Token(ctx context.Context, pod *corev1.Pod, audience string, lifetime time.Duration) (token string, expires time.Time, err error)
}

// defaultTokenLifetime is what a projection without expirationSeconds means in Kubernetes.
const defaultTokenLifetime = time.Hour

// volumes creates a pod's volumes as directories of this machine.
type volumes struct {
	root   string // one directory per volume
	refs   resolver
	tokens tokenSource
	now    func() time.Time
	owner  ownership
}

func (v volumes) dir(volume string) string { return filepath.Join(v.root, filepath.Base(volume)) }

// prepare makes every volume. It may be repeated, and fills in only what is missing from an emptyDir. It
// returns when the first token wants renewal; zero when there is none.
func (v volumes) prepare(ctx context.Context, pod *corev1.Pod) (time.Time, error) {
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if err := os.MkdirAll(v.dir(vol.Name), 0o755); err != nil {
			return time.Time{}, fmt.Errorf("making volume %q: %w", vol.Name, err)
		}
		if err := v.open(vol); err != nil {
			return time.Time{}, fmt.Errorf("making volume %q: %w", vol.Name, err)
		}
		files, err := v.files(ctx, pod, vol)
		if err != nil {
			return time.Time{}, fmt.Errorf("volume %q: %w", vol.Name, err)
		}
		for _, f := range files {
			if err := v.write(vol.Name, f); err != nil {
				return time.Time{}, fmt.Errorf("volume %q: %w", vol.Name, err)
			}
		}
	}
	return v.renewTokens(ctx, pod)
}

// renewTokens replaces every projected token and returns when to do so again; zero when the pod has none.
func (v volumes) renewTokens(ctx context.Context, pod *corev1.Pod) (time.Time, error) {
	var next time.Time
	for _, vol := range pod.Spec.Volumes {
		if vol.Projected == nil {
			continue
		}
		for _, s := range vol.Projected.Sources {
			if s.ServiceAccountToken == nil {
				continue
			}
			due, err := v.renewToken(ctx, pod, vol.Name, vol.Projected.DefaultMode, s.ServiceAccountToken)
			if err != nil {
				return time.Time{}, fmt.Errorf("volume %q: %w", vol.Name, err)
			}
			if next.IsZero() || due.Before(next) {
				next = due
			}
		}
	}
	return next, nil
}

func (v volumes) renewToken(
	ctx context.Context, pod *corev1.Pod, volume string, defaultMode *int32, p *corev1.ServiceAccountTokenProjection,
) (time.Time, error) {
	lifetime := defaultTokenLifetime
	if p.ExpirationSeconds != nil {
		lifetime = time.Duration(*p.ExpirationSeconds) * time.Second
	}
	asked := v.now()
	token, expires, err := v.tokens.Token(ctx, pod, p.Audience, lifetime)
	if err != nil {
		return time.Time{}, fmt.Errorf("creating a token for ServiceAccount %q: %w", pod.Spec.ServiceAccountName, err)
	}
	if err := v.write(volume, file{path: p.Path, data: []byte(token), mode: v.owner.tokenMode(defaultMode), token: true}); err != nil {
		return time.Time{}, err
	}
	return renewalTime(asked, expires), nil
}

// renewalTime leaves a fifth of a token's life, so that an API server that is away for a while costs nothing; no token is
// kept for more than a day.
func renewalTime(asked, expires time.Time) time.Time {
	due := asked.Add(expires.Sub(asked) * 8 / 10)
	if day := asked.Add(24 * time.Hour); due.After(day) {
		return day
	}
	return due
}

// remove deletes the pod's volumes.
func (v volumes) remove() error {
	if err := os.RemoveAll(v.root); err != nil {
		return fmt.Errorf("removing the pod's volumes: %w", err)
	}
	return nil
}

// file is one file of a volume.
type file struct {
	path  string // within the volume
	data  []byte
	mode  os.FileMode
	token bool
}

// open lets every user write to an emptyDir, as on any node: the mode of the pod's directory excludes other users of this machine.
func (v volumes) open(vol *corev1.Volume) error {
	if vol.EmptyDir == nil {
		return nil
	}
	if err := os.Chmod(v.dir(vol.Name), 0o777); err != nil { //nolint:gosec // see above
		return err
	}
	mode := os.FileMode(0o777)
	if v.owner.group != nil { // which new files are to belong to
		mode |= os.ModeSetgid
	}
	return v.owner.give(v.dir(vol.Name), mode, false)
}

// write puts a file in place with a rename: a reader sees the old one or the new one.
func (v volumes) write(volume string, f file) error {
	if !filepath.IsLocal(f.path) {
		return fmt.Errorf("the path %q leaves the volume", f.path)
	}
	target := filepath.Join(v.dir(volume), f.path)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(v.root, ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // after the rename there is nothing left to remove
	_, err = tmp.Write(f.data)
	if err = errors.Join(err, tmp.Chmod(f.mode), tmp.Close(), v.owner.give(tmp.Name(), f.mode, f.token)); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), target)
}

// files gathers the content of a volume, tokens aside.
func (v volumes) files(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume) ([]file, error) {
	switch {
	case vol.Secret != nil:
		s := vol.Secret
		return v.secretFiles(ctx, pod, s.SecretName, s.Optional, s.Items, mode(s.DefaultMode))
	case vol.ConfigMap != nil:
		c := vol.ConfigMap
		return v.configMapFiles(ctx, pod, c.Name, c.Optional, c.Items, mode(c.DefaultMode))
	case vol.DownwardAPI != nil:
		return v.downwardFiles(pod, vol.DownwardAPI.Items, mode(vol.DownwardAPI.DefaultMode))
	case vol.Projected != nil:
		return v.projectedFiles(ctx, pod, vol.Projected)
	}
	return nil, nil // emptyDir
}

func (v volumes) projectedFiles(ctx context.Context, pod *corev1.Pod, p *corev1.ProjectedVolumeSource) ([]file, error) {
	var all []file
	for _, s := range p.Sources {
		var files []file
		var err error
		switch {
		case s.Secret != nil:
			files, err = v.secretFiles(ctx, pod, s.Secret.Name, s.Secret.Optional, s.Secret.Items, mode(p.DefaultMode))
		case s.ConfigMap != nil:
			files, err = v.configMapFiles(ctx, pod, s.ConfigMap.Name, s.ConfigMap.Optional, s.ConfigMap.Items, mode(p.DefaultMode))
		case s.DownwardAPI != nil:
			files, err = v.downwardFiles(pod, s.DownwardAPI.Items, mode(p.DefaultMode))
		}
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	return all, nil
}

func (v volumes) secretFiles(ctx context.Context, pod *corev1.Pod, name string, optional *bool, items []corev1.KeyToPath, m os.FileMode) ([]file, error) {
	secret, err := v.refs.secret(ctx, pod.Namespace, name, optional)
	if secret == nil {
		return nil, err
	}
	return keyFiles("Secret", name, secret.Data, optional, items, m)
}

func (v volumes) configMapFiles(ctx context.Context, pod *corev1.Pod, name string, optional *bool, items []corev1.KeyToPath, m os.FileMode) ([]file, error) {
	cm, err := v.refs.configMap(ctx, pod.Namespace, name, optional)
	if cm == nil {
		return nil, err
	}
	data := map[string][]byte{}
	for k, text := range cm.Data {
		data[k] = []byte(text)
	}
	for k, raw := range cm.BinaryData {
		data[k] = raw
	}
	return keyFiles("ConfigMap", name, data, optional, items, m)
}

// keyFiles picks the items, or everything when none are named.
func keyFiles(kind, name string, data map[string][]byte, optional *bool, items []corev1.KeyToPath, m os.FileMode) ([]file, error) {
	var files []file
	if len(items) == 0 {
		for key, content := range data {
			files = append(files, file{path: key, data: content, mode: m})
		}
		return files, nil
	}
	for _, item := range items {
		content, ok := data[item.Key]
		if err := keyError(ok, optional, kind, name, item.Key); err != nil {
			return nil, err
		}
		if ok {
			files = append(files, file{path: item.Path, data: content, mode: itemMode(item.Mode, m)})
		}
	}
	return files, nil
}

func (v volumes) downwardFiles(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, m os.FileMode) ([]file, error) {
	var files []file
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = fieldValue(pod, v.refs.machine, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			var c *corev1.Container
			if c, err = containerOf(pod, nil, item.ResourceFieldRef.ContainerName); err == nil {
				value, err = resourceValue(c, v.refs.machine, item.ResourceFieldRef)
			}
		}
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: item.Path, data: []byte(value), mode: itemMode(item.Mode, m)})
	}
	return files, nil
}

func mode(m *int32) os.FileMode { return itemMode(m, 0o644) }

func itemMode(m *int32, otherwise os.FileMode) os.FileMode {
	if m == nil {
		return otherwise
	}
	return os.FileMode(*m) & os.ModePerm
}
