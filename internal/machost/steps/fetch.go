package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

const (
	// maxArchive is far more than Tart has, and far less than a disk.
	maxArchive = 1 << 30
	// fetchPatience is for the whole archive.
	fetchPatience = 30 * time.Minute
	// progressEvery is the number of bytes between two progress messages.
	progressEvery = 16 << 20
)

// DigestError reports that an archive is not the one that was asked for.
type DigestError struct{ Want, Have string }

// Error names both digests.
func (e *DigestError) Error() string {
	return fmt.Sprintf("the archive's SHA-256 is %s, expected %s: nothing was unpacked", e.Have, e.Want)
}

// fetch copies the archive to where root alone can change it, and keeps it only if its digest is right.
func (s tartStep) fetch(ctx context.Context, h machost.Host) error {
	ctx, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	source, err := s.open(ctx, h)
	if err == nil {
		defer source.Close()
		checked := &checkedReader{from: source, sum: sha256.New(), want: s.archive.SHA256, tell: func(bytes int64) {
			s.facts.Progress(fmt.Sprintf("%d MiB of %s are here", bytes>>20, archiveName(s.archive.Archive)))
		}}
		err = h.WriteFile(s.fetched(), checked, machost.Attributes{Mode: 0o600})
	}
	var wrong *DigestError
	switch {
	case errors.As(err, &wrong):
		return &machost.StepError{File: archiveName(s.archive.Archive), Err: wrong,
			Remedy: "Compare tart.archive and tart.sha256 in the configuration with Tart's release."}
	case err != nil:
		return fmt.Errorf("fetching Tart: %w", err)
	}
	return nil
}

func (s tartStep) open(ctx context.Context, h machost.Host) (io.ReadCloser, error) {
	if strings.HasPrefix(s.archive.Archive, "/") {
		return h.Open(s.archive.Archive)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.archive.Archive, nil)
	if err != nil {
		return nil, withoutQuery(err)
	}
	client := *s.facts.HTTP
	client.CheckRedirect = func(to *http.Request, via []*http.Request) error {
		if to.URL.Scheme != "https" || len(via) > 10 {
			return errors.New("redirected to a URL that is not https, or too many redirects")
		}
		return nil
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, withoutQuery(err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s returned %s", request.URL.Host, response.Status)
	}
	return response.Body, nil
}

// withoutQuery leaves out what follows a question mark in an address: it may be what grants the right to fetch.
func withoutQuery(err error) error {
	var of *url.Error
	if !errors.As(err, &of) {
		return err
	}
	address, _, _ := strings.Cut(of.URL, "?")
	return &url.Error{Op: of.Op, URL: address, Err: of.Err}
}

// checkedReader ends in an error unless the data has the digest, so that its writer keeps nothing.
type checkedReader struct {
	from io.Reader
	sum  hash.Hash
	want string
	read int64
	tell func(bytes int64)
}

// Read reads on.
func (r *checkedReader) Read(into []byte) (int, error) {
	n, err := r.from.Read(into)
	r.sum.Write(into[:n])
	if (r.read+int64(n))/progressEvery > r.read/progressEvery {
		r.tell(r.read + int64(n))
	}
	r.read += int64(n)
	if r.read > maxArchive {
		return n, fmt.Errorf("it has more than %d MiB", maxArchive>>20)
	}
	if have := hex.EncodeToString(r.sum.Sum(nil)); errors.Is(err, io.EOF) && have != r.want {
		return n, &DigestError{r.want, have}
	}
	return n, err
}
