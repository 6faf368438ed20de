package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Runtime is the container runtime of a running node, of this process or of another.
type Runtime struct {
	// Init is the PID of the node's first process.
	Init int
}

// command runs on the node, as root, in its namespaces.
func (r Runtime) command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "nsenter", append([]string{"--target=" + strconv.Itoa(r.Init), "--mount", "--net", "--uts", "--ipc", "--pid", "--"}, args...)...)
	command.WaitDelay = time.Second // ends with nsenter, also if what it has started does not
	command.Env = append(os.Environ(), "PATH="+insideParts+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR=/run/node/tmp")
	return command
}

func (r Runtime) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return r.command(ctx, append([]string{filepath.Join(insideParts, "ctr"), "--address=" + runtimeSock, "--connect-timeout=5s", "--namespace=k8s.io"}, args...)...)
}

func (r Runtime) images(ctx context.Context, args ...string) *exec.Cmd {
	return r.ctr(ctx, append([]string{"images"}, args...)...)
}

// ContainersBut are the ids of containers and sandboxes that the node has for pods of a namespace, running or not, but for those of some pods, by UID.
func (r Runtime) ContainersBut(ctx context.Context, namespace string, uids ...string) ([]string, error) {
	filter := fmt.Sprintf("labels.%q==%s", "io.kubernetes.pod.namespace", namespace)
	for _, uid := range uids {
		filter += fmt.Sprintf(",labels.%q!=%s", "io.kubernetes.pod.uid", uid)
	}
	output, err := r.ctr(ctx, "containers", "list", "--quiet", filter).Output()
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	return strings.Fields(string(output)), nil
}

// Import gives the node an image, in the format of `docker save` or of OCI, so that no registry is asked for it. Pods can name it by its digest, too, as
// if it had been pulled.
func (r Runtime) Import(ctx context.Context, archive io.Reader) error {
	unlock, err := lockImports(ctx, filepath.Join("/proc", strconv.Itoa(r.Init), "root", insideState, "import.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	command := r.images(ctx, "import", "--local", "--snapshotter=overlayfs", "-")
	command.Stdin = archive
	if err := output(command); err != nil {
		return fmt.Errorf("importing an image: %w", err)
	}
	records, err := r.records(ctx)
	if err != nil {
		return err
	}
	missing, stale := digestNames(records)
	for _, image := range missing {
		name := image.byDigest()
		if err := output(r.images(ctx, "tag", "--force", image.Name, name)); err != nil {
			return fmt.Errorf("naming image %s by its digest: %w", image.Name, err)
		}
		if err := output(r.images(ctx, "label", name, labelLoaded+"=true")); err != nil {
			return fmt.Errorf("labeling image %s: %w", name, err)
		}
	}
	for _, name := range stale {
		if err := output(r.images(ctx, "remove", name)); err != nil {
			return fmt.Errorf("removing the name %s: %w", name, err)
		}
	}
	return nil
}

// lockImports returns when no other import of any process names images. Each reads all names before it changes some.
func lockImports(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the node's images: %w", err)
	}
	unlock = func() { _ = file.Close() }          // always nil; releases the lock
	tick := time.NewTicker(50 * time.Millisecond) // a lock says nothing when it becomes free
	defer tick.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			unlock()
			return nil, fmt.Errorf("locking the node's images: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			unlock()
			return nil, fmt.Errorf("waiting for another import to end: %w", context.Cause(ctx))
		}
	}
}

// output runs a command. Its error has what the command printed.
func output(command *exec.Cmd) error {
	if printed, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(printed)))
	}
	return nil
}

// Images are those that the node has, by name. Each has one of a pod's names: those by digest are left out.
func (r Runtime) Images(ctx context.Context) ([]NodeImage, error) {
	records, err := r.records(ctx)
	return tagged(records), err
}

func (r Runtime) records(ctx context.Context) ([]imageRecord, error) {
	command := r.images(ctx, "list")
	var problem strings.Builder
	command.Stderr = &problem
	printed, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing images: %w: %s", err, strings.TrimSpace(problem.String()))
	}
	return parseImages(string(printed)), nil
}
