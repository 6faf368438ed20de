package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// mount resolves a volume mount, and creates its subPath where the volume has none.
func (r resolver) mount(pod *corev1.Pod, m corev1.VolumeMount, lookup func(name string) (string, bool)) (sandbox.Mount, error) {
	sub, err := subPath(m, lookup)
	if err != nil {
		return sandbox.Mount{}, err
	}
	volume := r.volume(m.Name)
	if sub != "" {
		if err := makeSubPath(volume, sub); err != nil {
			return sandbox.Mount{}, fmt.Errorf("the subPath %q of volume %q: %w", sub, m.Name, err)
		}
	}
	return sandbox.Mount{
		MountPath: filepath.Clean(m.MountPath), HostPath: filepath.Join(volume, sub), ReadOnly: m.ReadOnly || filled(pod, m.Name),
	}, nil
}

// filled reports whether the agent fills the volume. Containers only read it, as on a kubelet.
func filled(pod *corev1.Pod, volume string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume && v.EmptyDir == nil })
}

// subPath is the path of a mount within its volume, "" for all of the volume.
func subPath(m corev1.VolumeMount, lookup func(name string) (string, bool)) (string, error) {
	sub, unset := m.SubPath, ""
	if m.SubPathExpr != "" {
		sub = expand(m.SubPathExpr, func(name string) (string, bool) {
			value, _ := lookup(name)
			if value == "" {
				unset = name
			}
			return value, true
		})
	}
	switch {
	case unset != "":
		return "", fmt.Errorf("the subPathExpr %q of volume %q: the variable %s is not set", m.SubPathExpr, m.Name, unset)
	case sub != "" && !filepath.IsLocal(sub):
		return "", fmt.Errorf("the subPath %q of volume %q leaves the volume", sub, m.Name)
	}
	return sub, nil
}

// makeSubPath creates the directories of a subPath with the volume's own mode. What a container put into the volume cannot lead out of it.
func makeSubPath(volume, sub string) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if _, err := root.Stat(sub); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	like, err := root.Stat(".")
	if err != nil {
		return err
	}
	made := ""
	for part := range strings.SplitSeq(filepath.Clean(sub), string(filepath.Separator)) {
		made = filepath.Join(made, part)
		if err := root.Mkdir(made, like.Mode().Perm()); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := root.Chmod(made, like.Mode()&(fs.ModePerm|fs.ModeSetgid)); err != nil { // whatever the umask
			return err
		}
	}
	return nil
}
