package node

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// logged is a sandbox whose containers have this log.
type logged struct {
	sandbox.Sandbox
	text string
}

func (l logged) OpenLog(string, string) (sandbox.Log, error) {
	return textLog{strings.NewReader(l.text)}, nil
}

type textLog struct{ *strings.Reader }

func (textLog) Close() error                      { return nil }
func (l textLog) Size() (int64, error)            { return l.Reader.Size(), nil }
func (textLog) OffsetAt(time.Time) (int64, error) { return 0, errors.ErrUnsupported }

var _ io.ReaderAt = textLog{}

func TestMessage_IsTheFileOrTheEndOfTheLog(t *testing.T) {
	failed := sandbox.Exit{Code: 1}
	for name, test := range map[string]struct {
		file, log string
		policy    corev1.TerminationMessagePolicy
		exit      sandbox.Exit
		want      string
	}{
		"the file":                  {file: "done", log: "log\n", policy: corev1.TerminationMessageFallbackToLogsOnError, exit: failed, want: "done"},
		"the file of a success":     {file: "done", want: "done"},
		"its last bytes":            {file: strings.Repeat("x", 5000) + "end", want: strings.Repeat("x", messageBytes-3) + "end"},
		"bytes that are no text":    {file: "a\xffb", want: "a?b"},
		"no log without the policy": {log: "log\n", exit: failed},
		"the log":                   {log: "log\n", policy: corev1.TerminationMessageFallbackToLogsOnError, exit: failed, want: "log\n"},
		"no log of a success":       {log: "log\n", policy: corev1.TerminationMessageFallbackToLogsOnError},
		"the log's last lines": {
			log: strings.Repeat("early\n", 7) + strings.Repeat("a\n", messageLogLines), policy: corev1.TerminationMessageFallbackToLogsOnError, exit: failed,
			want: strings.Repeat("a\n", messageLogLines),
		},
		"the log's last bytes": {
			log: strings.Repeat("x", 3000) + "\n", policy: corev1.TerminationMessageFallbackToLogsOnError, exit: failed, want: strings.Repeat("x", messageLogBytes-1) + "\n",
		},
		"after what the back end says": {file: "done", exit: sandbox.Exit{Code: 128, Reason: "StartError", Message: "no such program"}, want: "no such program: done"},
		"a start that failed has none": {
			log: "log\n", policy: corev1.TerminationMessageFallbackToLogsOnError, exit: sandbox.Exit{Code: 128, Reason: "StartError", Message: "no such program"}, want: "no such program",
		},
	} {
		v := volumes{root: t.TempDir()}
		c := corev1.Container{Name: "main", TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: test.policy}
		mount, err := v.messageFile(&c)
		require.NoError(t, err)
		require.Equal(t, "/dev/termination-log", mount.MountPath)
		info, err := os.Stat(mount.HostPath)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o666), info.Mode().Perm(), "any user writes to it")
		require.NoError(t, os.WriteFile(mount.HostPath, []byte(test.file), 0o600))
		a := &Agent{opts: Options{Sandbox: logged{text: test.log}}}
		exit := test.exit
		a.explain(v, &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}, "main", &exit)
		require.Equal(t, test.want, exit.Message, name)
	}
}

func TestMessage_AContainerWithoutAPathHasNone(t *testing.T) {
	mount, err := volumes{root: t.TempDir()}.messageFile(&corev1.Container{Name: "main"})
	require.NoError(t, err)
	require.Zero(t, mount)
}
