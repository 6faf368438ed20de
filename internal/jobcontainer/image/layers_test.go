package image_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
)

// layered has an image with this many layers behind h's front, and returns their digests. atLayer replaces the responses to their requests.
func (h *hostile) layered(t *testing.T, count int) (digests []string, atLayer func(http.HandlerFunc)) {
	t.Helper()
	built := registrytest.Image(t, "linux/amd64", v1.Config{Cmd: []string{"run"}})
	for i := range count {
		layer := static.NewLayer(fmt.Appendf(nil, "%s: layer %d of %d", t.Name(), i, count), types.OCILayer)
		digest, err := layer.Digest()
		require.NoError(t, err)
		digests = append(digests, digest.String())
		built, err = mutate.AppendLayers(built, layer)
		require.NoError(t, err)
	}
	h.registry.Push(t, "acme/layered:1", built)
	h.query.Image = h.front.Host + "/acme/layered:1"
	return digests, func(handler http.HandlerFunc) {
		h.front.Replace(registrytest.Blob, func(w http.ResponseWriter, r *http.Request) {
			for _, digest := range digests {
				if strings.HasSuffix(r.URL.Path, digest) {
					handler(w, r)
					return
				}
			}
			h.front.Pass(w, r)
		})
	}
}

// A registry that has the manifest and hangs when it is asked for a layer would block the pod, and by default the node's other pulls.
func TestResolve_EndsItsWaitForLayersThatDoNotCome(t *testing.T) {
	h := newHostile(t)
	_, atLayer := h.layered(t, 2)
	late := "Image 'IMAGE' could not be pulled: registry '" + h.front.Host + "' has its manifest, but did not send its layers within 15s. Run the job again later."
	reached := make(chan struct{})
	for name, handler := range map[string]http.HandlerFunc{
		"nothing comes": hang(reached, ""),
		"a header comes": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			hang(reached, "")(w, r)
		},
	} {
		atLayer(handler)
		done := start(t, h.resolver, h.query)
		await.Receive(t, reached, "the request of a layer: "+name)
		await.Receive(t, reached, "that of the other one: "+name)
		require.Empty(t, done)
		h.now.advance(timeout)
		problem := failed(t, await.Receive(t, done, "the end of the wait: "+name).err, h.query, image.TimedOut, late)
		require.True(t, problem.Temporary())
	}
	h.front.Replace(registrytest.Blob, nil)
	succeeds(t, h.resolver, h.query)
}

func TestResolve_LayersThatAreMissing(t *testing.T) {
	h := newHostile(t)
	digests, atLayer := h.layered(t, 3)
	missing := "Image 'IMAGE' could not be pulled: registry '" + h.front.Host + "' does not have all of its layers. Push the image again."
	last := func(respond http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, digests[2]) {
				respond(w, r)
				return
			}
			h.front.Pass(w, r)
		}
	}
	atLayer(last(http.NotFound))
	require.False(t, fails(t, h.resolver, h.query, image.NotFound, missing).Temporary())

	h.front.Replace(registrytest.Other, http.NotFound)
	atLayer(last(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/storage/blob?signature=x", http.StatusTemporaryRedirect)
	}))
	fails(t, h.resolver, h.query, image.NotFound, missing)

	for status, sentence := range map[int]string{
		403: "refused the credentials. Check the user name and the password, and that they may read this image.",
		503: "failed with status 503. Run the job again later.",
	} {
		atLayer(last(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		got := await.Receive(t, start(t, h.resolver, h.query), "the end of the resolution")
		require.ErrorContains(t, got.err, "registry '"+h.front.Host+"' "+sentence)
	}
}

// Of each layer one byte is asked for, where the registry redirects to, with no credentials there, and not again within the hour.
func TestResolve_AsksForAByteOfEachLayer(t *testing.T) {
	h := newHostile(t)
	digests, atLayer := h.layered(t, 3)
	var mu sync.Mutex
	var ranges, secrets []string
	var storage http.HandlerFunc = func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		ranges, secrets = append(ranges, r.Header.Get("Range")), append(secrets, r.Header.Get("Authorization"))
		w.Header().Set("Content-Range", "bytes 0-0/20")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write([]byte("l"))
	}
	stored := httptest.NewServer(storage)
	defer stored.Close()
	h.query.Policy = plain(t, h.front.Host, strings.TrimPrefix(stored.URL, "http://"))
	atLayer(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, stored.URL+"/blob?signature=x", http.StatusTemporaryRedirect)
	})
	require.Equal(t, []string{"run"}, succeeds(t, h.resolver, h.query).Config.Cmd)
	require.Equal(t, []string{"bytes=0-0", "bytes=0-0", "bytes=0-0"}, ranges)
	require.Equal(t, []string{"", "", ""}, secrets)
	require.Len(t, h.front.Requests(), 2+len(digests), "the tag and the config, and each layer")
	h.front.Forget()
	h.now.advance(timeout)
	succeeds(t, h.resolver, h.query)
	require.Equal(t, []string{"HEAD tag"}, h.front.Requests())
	succeeds(t, newResolver(t, h.now, image.Options{}), h.query)

	// A registry without ranges sends a layer as a whole, or as long as it is read.
	atLayer(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		h.front.Pass(w, r)
	})
	succeeds(t, newResolver(t, h.now, image.Options{}), h.query)
	atLayer(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<15)); err != nil {
				return
			}
		}
	})
	succeeds(t, newResolver(t, h.now, image.Options{}), h.query)
}

// A redirect of each layer does not use up the limits of the image.
func TestResolve_LayersHaveRequestsOfTheirOwn(t *testing.T) {
	h := newHostile(t)
	_, atLayer := h.layered(t, 20)
	h.front.Replace(registrytest.Other, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) })
	atLayer(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/storage", http.StatusTemporaryRedirect)
	})
	succeeds(t, h.resolver, h.query)
	require.Len(t, h.front.Requests(), 2+2*20)

	atLayer(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path+"?again", http.StatusFound)
	})
	fails(t, newResolver(t, h.now, image.Options{}), h.query, image.ResponseInvalid,
		"Image 'IMAGE' could not be pulled: registry '"+h.front.Host+"' sent more than 8 redirects.")
}

// A mirror may fetch all of a layer before it sends a byte of it, and the one of a single machine has no layers.
func TestResolve_MirrorsAreNotAskedForLayers(t *testing.T) {
	h := newHostile(t)
	_, atLayer := h.layered(t, 2)
	atLayer(http.NotFound)
	mirror, err := image.ParseMirror("registry.acme.example=http://" + h.front.Host)
	require.NoError(t, err)
	r := newResolver(t, h.now, image.Options{Mirrors: []image.Mirror{mirror}})
	h.query.Image = "registry.acme.example/acme/layered:1"
	succeeds(t, r, h.query)
	require.Equal(t, []string{"GET tag", "GET blob"}, h.front.Requests())
}
