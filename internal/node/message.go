package node

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// The limits of a termination message, as a kubelet has them.
const (
	messageBytes    = 4 << 10 // of the container's file
	messageLogBytes = 2 << 10
	messageLogLines = 80
)

// messageFile creates the file for a container's termination message, beside the volumes. Every user may write to it: the mode of the agent's
// directory excludes other users of this machine. A container without a path for it has none.
func (v volumes) messageFile(c *corev1.Container) (sandbox.Mount, error) {
	if !filepath.IsAbs(c.TerminationMessagePath) {
		return sandbox.Mount{}, nil
	}
	if err := os.MkdirAll(v.root, 0o755); err != nil {
		return sandbox.Mount{}, err
	}
	file, err := os.OpenFile(v.messagePath(c.Name), os.O_CREATE|os.O_WRONLY, 0o666) //nolint:gosec // see above
	if err != nil {
		return sandbox.Mount{}, err
	}
	err = errors.Join(file.Chmod(0o666), file.Close()) // whatever the umask
	return sandbox.Mount{MountPath: filepath.Clean(c.TerminationMessagePath), HostPath: file.Name()}, err
}

// messagePath has a name that no volume can have.
func (v volumes) messagePath(container string) string {
	return filepath.Join(v.root, ".message-"+filepath.Base(container))
}

// explain adds a container's termination message to its exit: what it wrote to the file or, if the pod wants that, the end of its log.
func (a *Agent) explain(vol volumes, pod *corev1.Pod, name string, exit *sandbox.Exit) {
	if pod == nil {
		return
	}
	c, err := containerOf(pod, nil, name)
	if err != nil {
		return
	}
	text, err := lastOfFile(vol.messagePath(name))
	if err == nil && text == "" && c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError && exit.Code != 0 && exit.Reason == "" {
		text, err = a.lastOfLog(string(pod.UID), name)
	}
	if err != nil {
		a.opts.Log.Warn("reading a termination message failed", "namespace", pod.Namespace, "pod", pod.Name, "container", name, "error", err)
	}
	if exit.Message != "" && text != "" {
		text = ": " + text
	}
	exit.Message += text
}

// lastOfFile is the end of a termination message file; "" when there is none.
func lastOfFile(path string) (string, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	return lastOf(file, info.Size(), messageBytes)
}

func (a *Agent) lastOfLog(podUID, name string) (string, error) {
	log, err := a.opts.Sandbox.OpenLog(podUID, name)
	if errors.Is(err, sandbox.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }()
	size, err := log.Size()
	if err != nil {
		return "", err
	}
	text, err := lastOf(log, size, messageLogBytes)
	return lastLines(text, messageLogLines), err
}

// lastOf reads at most n bytes from the end.
func lastOf(from io.ReaderAt, size, n int64) (string, error) {
	end := make([]byte, min(size, n))
	read, err := from.ReadAt(end, size-int64(len(end)))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	// The API takes no bytes that are not UTF-8.
	return string(bytes.ToValidUTF8(end[:read], []byte("?"))), err
}

// lastLines is the end of a text from its n-th last line on.
func lastLines(text string, n int) string {
	for i := len(text) - 1; i > 0; i-- {
		if text[i-1] != '\n' {
			continue
		}
		if n--; n == 0 {
			return text[i:]
		}
	}
	return text
}
