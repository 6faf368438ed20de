package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli/reach"
)

// RunnerLog reads the last log lines of a runner that failed.
func (c *Client) RunnerLog(ctx context.Context, namespace, pod string) (adminapi.RunnerLog, error) {
	var log adminapi.RunnerLog
	err := c.call(ctx, http.MethodGet, adminapi.PathRunners+"/"+url.PathEscape(namespace)+"/"+url.PathEscape(pod)+"/log", nil, "", nil, &log)
	return log, err
}

// LogQuery asks for the log of a runner.
type LogQuery struct {
	Namespace, Pod, Container string
	Follow                    bool
	Lines                     int64 // the last ones; negative: all
}

// ForbiddenLogError: the caller may not read logs of pods. The last lines of a failed runner need another right.
type ForbiddenLogError struct{ Err error }

// Error says which right is missing.
func (e *ForbiddenLogError) Error() string { return e.Err.Error() }

// Unwrap gives the cluster's error.
func (e *ForbiddenLogError) Unwrap() error { return e.Err }

// LiveLog copies the log of a runner whose pod exists, with the caller's own rights in the cluster. Without such a pod it writes nothing, and
// there is false. The same with *ForbiddenLogError, if the caller has no right to logs of pods: the cluster does not say whether there is one.
func LiveLog(ctx context.Context, config *rest.Config, q LogQuery, to io.Writer) (there bool, err error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // of one that is followed
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	options := corev1.PodLogOptions{Container: q.Container, Follow: q.Follow}
	if q.Lines >= 0 {
		options.TailLines = &q.Lines
	}
	stream, err := client.CoreV1().Pods(q.Namespace).GetLogs(q.Pod, &options).Stream(ctx)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if apierrors.IsForbidden(err) {
		return false, &ForbiddenLogError{reach.Cluster("reading the log of "+q.Pod, err)}
	}
	if err != nil {
		return false, reach.Cluster("reading the log of "+q.Pod, err)
	}
	defer stream.Close()
	if _, err := io.Copy(to, stream); err != nil && ctx.Err() == nil {
		return true, fmt.Errorf("reading the log of %s: %w", q.Pod, err)
	}
	return true, nil
}

// LogHeadline says how a runner exited whose last log lines are kept.
func LogHeadline(log adminapi.RunnerLog) string {
	how := log.Reason
	if log.ExitCode != nil {
		how = strings.TrimSpace(fmt.Sprintf("exit code %d %s", *log.ExitCode, parenthesized(log.Reason)))
	}
	text := fmt.Sprintf("runner %s of pool %s exited at %s with %s. Last log lines", log.Name, log.Pool, log.EndedAt.Local().Format(time.DateTime), how)
	if log.Cut {
		text += " (truncated)"
	}
	return text + ":"
}

func parenthesized(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}
