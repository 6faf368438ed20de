package jobcontainers

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// broker stands in for couriers and the controller: it reads the requests in the volume of couriers, opens them with the controller's key,
// and starts the containers.
type broker struct {
	pod *processPod
	key *letter.PrivateKey

	mu       sync.Mutex
	requests []jobcontainer.Request
	count    int
}

// startBroker starts it; the test's end stops it.
func startBroker(t *testing.T, pod *processPod) *broker {
	t.Helper()
	key, err := letter.NewPrivateKey()
	require.NoError(t, err)
	b := &broker{pod: pod, key: key}
	for _, dir := range []string{"requests", "responses", "failures"} {
		path := pod.at("courier", dir)
		require.NoError(t, os.MkdirAll(path, 0o777))
		require.NoError(t, os.Chmod(path, 0o777))
	}
	require.NoError(t, os.Chmod(pod.at("courier"), 0o777))
	stop, stopped := make(chan struct{}), make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		defer close(stopped)
		look := time.NewTicker(5 * time.Millisecond)
		defer look.Stop()
		for {
			select {
			case <-stop:
				return
			case <-look.C:
				if err := b.look(); err != nil {
					failed <- err
					return
				}
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		await.Receive(t, stopped, "the broker stops")
		select {
		case err := <-failed:
			t.Errorf("the broker has failed: %v", err)
		default:
		}
	})
	return b
}

// environment is what the runner needs to ask.
func (b *broker) environment() []string {
	return []string{courier.EnvPublicKey + "=" + b.key.Public()}
}

func (b *broker) asked() []jobcontainer.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]jobcontainer.Request{}, b.requests...)
}

// look answers each request that has no response.
func (b *broker) look() error {
	entries, err := os.ReadDir(b.pod.at("courier", "requests"))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := os.ReadFile(b.pod.at("courier", "requests", entry.Name()))
		if err != nil {
			return err
		}
		request, err := b.key.Open(string(text))
		if err != nil {
			return err
		}
		if request.ID != entry.Name() {
			return fmt.Errorf("request %s is in the file %s", request.ID, entry.Name())
		}
		b.mu.Lock()
		b.requests = append(b.requests, request)
		b.count++
		b.mu.Unlock()
		if err := b.answer(request); err != nil {
			return err
		}
		if err := os.Remove(b.pod.at("courier", "requests", entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// answer adds all containers of a request, or none.
func (b *broker) answer(request jobcontainer.Request) error {
	response := jobcontainer.Response{ID: request.ID}
	var images []Image
	for _, wanted := range request.Containers {
		image, known := b.pod.images[wanted.Image]
		switch {
		case !known:
			response.Refusal = fmt.Sprintf("Image '%s' does not exist.", wanted.Image)
		case image.Refusal != "":
			response.Refusal = image.Refusal
		}
		images = append(images, image)
	}
	if response.Refusal != "" {
		return b.place("responses", response.ID, response)
	}
	for i, wanted := range request.Containers {
		name := fmt.Sprintf("%s-%d-%d", wanted.Role, b.count, wanted.Position)
		config := images[i].Config
		if config.OS == "" {
			config.OS, config.Architecture = "linux", architecture
		}
		response.Containers = append(response.Containers, jobcontainer.Granted{
			Role: wanted.Role, Position: wanted.Position, Name: name, Image: wanted.Image + "@sha256:" + strings.Repeat("0", 64), Config: config,
		})
	}
	if err := b.place("responses", response.ID, response); err != nil {
		return err
	}
	for i, granted := range response.Containers {
		if images[i].Pull != "" {
			if err := b.fail(letter.Failure{Container: granted.Name, Text: images[i].Pull, Final: true}); err != nil {
				return err
			}
			continue
		}
		if err := b.pod.addContainer(granted.Name, images[i]); err != nil {
			return fmt.Errorf("starting %s: %w", granted.Name, err)
		}
	}
	return nil
}

// fail says that a container does not run, as the controller reads it in the pod's status.
func (b *broker) fail(failure letter.Failure) error {
	return b.place("failures", failure.Container, failure)
}

func (b *broker) place(dir, name string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temporary := b.pod.at("courier", ".new-"+name)
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(b.pod.at("courier", dir), name))
}
