package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// writeJobMessage writes the job message to the worker's log, as GitHub's worker does before it starts a job. A container hook reads
// the names of the services there: its input has none. Without a hook the log has no reader, and is not written.
func (w *work) writeJobMessage() error {
	if w.variable(envContainerHooks) == "" {
		return nil
	}
	text, err := maskedJSON(w.msg, w.masks)
	if err != nil {
		return fmt.Errorf("writing the job message to the worker's log: %w", err)
	}
	now := w.r.opts.Now().UTC()
	file := filepath.Join(w.r.opts.WorkDir, "_diag", "Worker_"+now.Format("20060102-150405")+"-utc.log")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("writing the job message to the worker's log: %w", err)
	}
	stamp := now.Format("2006-01-02 15:04:05Z")
	line := fmt.Sprintf("[%s INFO Worker] Job message:\n %s\n[%s INFO Worker] Listening for cancel message from the channel.\n", stamp, text, stamp)
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing the job message to the worker's log: %w", err)
	}
	_, err = log.WriteString(line)
	if closeErr := log.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("writing the job message to the worker's log: %w", err)
	}
	return nil
}

// maskedJSON is a message in JSON with its secrets masked, text by text: JSON's escapes would hide some of them from the masks.
func maskedJSON(msg *workflow.Message, masks *masker) ([]byte, error) {
	data, err := json.Marshal(msg)
	if err != nil {
		return nil, err
	}
	v, err := workflow.FromJSON(data)
	if err != nil {
		return nil, err
	}
	if data, err = json.Marshal(maskValue(v, masks)); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func maskValue(v workflow.Value, masks *masker) workflow.Value {
	switch v := v.(type) {
	case string:
		return masks.mask(v)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = maskValue(item, masks)
		}
		return out
	case *workflow.Object:
		out := workflow.NewObject()
		for _, k := range v.Keys() {
			item, _ := v.Get(k)
			out.Set(k, maskValue(item, masks))
		}
		return out
	}
	return v
}
