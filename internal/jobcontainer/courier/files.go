package courier

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

// Dir is where the volume is mounted in a runner's pod.
const Dir = "/bullpen/courier"

// EnvPublicKey is the variable of the runner's container with the key that requests are sealed to, in base64.
const EnvPublicKey = "BULLPEN_JOB_CONTAINERS_KEY"

const (
	requestsDir  = "requests"
	responsesDir = "responses"
	failuresDir  = "failures"
	closedFile   = "closed"
)

// maxFile is how large a file of the volume may be that is read.
const maxFile = 8 << 20

func prepare(dir string) error {
	for _, name := range []string{requestsDir, responsesDir, failuresDir} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return fmt.Errorf("preparing the volume %s: %w", dir, err)
		}
	}
	return nil
}

// place writes a file so that no reader sees half of it.
func place(dir, path string, content []byte) error {
	temporary, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), filepath.Join(dir, path))
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// read reads a regular file of bounded size: a job can write here, too.
func read(path string) ([]byte, error) {
	file, err := jobcontainer.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("reading %s: more than %d bytes", path, maxFile)
	}
	return content, err
}

// nextRequest is the request to send: the given one, or the first by name that has no response. Empty: there is none.
func nextRequest(dir, id string) (name, text string) {
	names := []string{id}
	if id == "" {
		entries, _ := os.ReadDir(filepath.Join(dir, requestsDir))
		names = names[:0]
		for _, e := range entries {
			names = append(names, e.Name())
		}
		slices.Sort(names)
	}
	for _, name := range names {
		if !letter.ValidID(name) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, responsesDir, name)); err == nil {
			continue
		}
		content, err := read(filepath.Join(dir, requestsDir, name))
		if err == nil && len(content) > 0 && len(content) <= letter.MaxRequestText {
			return name, string(content)
		}
	}
	return "", ""
}

func closedText(dir string) string {
	content, err := read(filepath.Join(dir, closedFile))
	if err != nil {
		return ""
	}
	return string(content)
}

// Close makes every request that has no response yet, and every later one, be refused at once with this sentence. A supervisor calls it when
// its pod is being deleted: a kubelet starts no container in such a pod, so no response can arrive.
func Close(dir, sentence string) error {
	if err := prepare(dir); err != nil {
		return err
	}
	return place(dir, closedFile, []byte(sentence))
}

// deliver writes what the controller sent.
func deliver(dir string, d letter.Delivery) error {
	var failures []error
	put := func(in, name string, value any) {
		if !letter.ValidID(name) {
			failures = append(failures, fmt.Errorf("writing a response: %w name", letter.ErrMalformed))
			return
		}
		content, err := json.Marshal(value)
		if err == nil {
			err = place(dir, filepath.Join(in, name), content)
		}
		failures = append(failures, err)
	}
	for _, r := range d.Responses {
		put(responsesDir, r.ID, r)
		_ = os.Remove(filepath.Join(dir, requestsDir, r.ID)) // a request with a response is not sent again in any case
	}
	for _, f := range d.Failures {
		put(failuresDir, f.Container, f)
	}
	if d.Closed != "" {
		failures = append(failures, place(dir, closedFile, []byte(d.Closed)))
	}
	return errors.Join(failures...)
}
