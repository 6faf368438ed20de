//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// Network is where an enclosure's pods are.
type Network interface {
	// Attach makes the pod's namespace and gives it an address. It is idempotent.
	Attach(ctx context.Context, podUID string) (netip.Addr, error)
	// Address is a pod's that is attached, or false.
	Address(podUID string) (netip.Addr, bool)
	// NamespaceFile is what a process enters to be in an attached pod's network.
	NamespaceFile(podUID string) string
	// Detach undoes Attach, once nothing of the pod runs. It is idempotent.
	Detach(ctx context.Context, podUID string) error
}

// Enclosure gives containers what they would find in a cluster: an address of the pod's own, the files of their image, volumes at
// their mountPaths, the user that their security context names. It separates what a program finds there, and does not keep one in:
// processes share the machine's process ids, its kernel without any filter, and its resources.
type Enclosure struct {
	// Network of the pods. Required.
	Network Network
	// Images is the directory of images. Required, a plain absolute path. The file system of the image example.com/team/program:v1 is the
	// directory example.com/team/program/v1 in it; a link to / makes it this machine's own (of / alone: nothing that is mounted below it is
	// seen).
	Images string
	// Nameserver answers DNS queries of pods; ClusterDomain ends the names of Services. The defaults are none and cluster.local.
	Nameserver    netip.Addr
	ClusterDomain string
	// EnterCommand is the argument vector that ends up in RunEnter; the container's directory is appended, and perhaps "--" and a command.
	// Default: this binary with `node enter`.
	EnterCommand []string
}

func (e *Enclosure) withDefaults(self string) (*Enclosure, error) {
	made := *e
	switch {
	case !canEnclose:
		return nil, errors.New("containers with their own network and files require Linux")
	case made.Network == nil:
		return nil, errors.New("containers with their own files also need their own network")
	case !plainPath.MatchString(made.Images):
		return nil, fmt.Errorf("directory of images %q: give an absolute path of letters, digits and / . _ + @ ~ - only", made.Images)
	}
	if made.ClusterDomain == "" {
		made.ClusterDomain = "cluster.local"
	}
	if made.EnterCommand == nil {
		made.EnterCommand = []string{self, "node", "enter"}
	}
	return &made, nil
}

// inside is what RunEnter makes of the shim's child.
type inside struct {
	Args      []string         `json:"args"`
	Dir       string           `json:"dir"`
	Image     string           `json:"image"` // the directory of its files
	Namespace string           `json:"namespace"`
	Hostname  string           `json:"hostname"`
	Security  sandbox.Security `json:"security"`
	// Files are written into the root, by path.
	Files map[string]string `json:"files"`
}

// enclosed completes the specification of a container with an enclosure.
func (s *Sandbox) enclosed(rec container, c sandbox.Container, sp spec) (spec, error) {
	e := s.opts.Enclosure
	if c.Security.NonRoot && c.Security.User == 0 {
		return spec{}, invalid("container %q: runAsNonRoot is set, and it would run as root: set runAsUser", c.Name)
	}
	image, err := e.files(c.Image)
	if err != nil {
		return spec{}, err
	}
	ref, err := s.pod(rec.uid)
	if err != nil {
		return spec{}, err
	}
	address, attached := e.Network.Address(rec.uid)
	if !attached {
		return spec{}, fmt.Errorf("pod %s/%s has no network", ref.Namespace, ref.Name)
	}
	sp.Args = append(append([]string{}, e.EnterCommand...), rec.dir)
	sp.Env = s.environ(rec, c)
	sp.Inside = &inside{
		Args: c.Command, Dir: c.WorkingDir, Image: image, Namespace: e.Network.NamespaceFile(rec.uid), Hostname: ref.Name, Security: c.Security,
		Files: map[string]string{
			"/etc/hostname":    ref.Name + "\n",
			"/etc/hosts":       fmt.Sprintf("127.0.0.1 localhost\n::1 localhost\n%s %s\n", address, ref.Name),
			"/etc/resolv.conf": e.resolvConf(ref.Namespace),
		},
	}
	return sp, nil
}

func (e *Enclosure) resolvConf(namespace string) string {
	if !e.Nameserver.IsValid() {
		return ""
	}
	d := e.ClusterDomain
	return fmt.Sprintf("nameserver %s\nsearch %s.svc.%s svc.%s %s\noptions ndots:5\n", e.Nameserver, namespace, d, d, d)
}

// files finds the directory of an image's files.
func (e *Enclosure) files(image string) (string, error) {
	name, _, _ := strings.Cut(image, "@")
	tag := "latest"
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name, tag = name[:at], name[at+1:]
	}
	relative := filepath.Join(filepath.FromSlash(name), tag)
	if !filepath.IsLocal(relative) || !plainPath.MatchString("/"+relative) {
		return "", invalid("%q is not the name of an image", image)
	}
	path := filepath.Join(e.Images, relative)
	folder, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("image %s not found: images are not pulled, put its files into %s", image, path)
	}
	if err != nil {
		return "", fmt.Errorf("finding the image %s: %w", image, err)
	}
	if !plainPath.MatchString(folder) {
		return "", fmt.Errorf("the image %s leads to %q: use directories of letters, digits and / . _ + @ ~ - only", image, folder)
	}
	return folder, nil
}
