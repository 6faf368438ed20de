package assets

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets/download"
)

// What a download may wait for.
const (
	connectPatience = 5 * time.Second  // until all checksums are here: without internet, compiling begins after this
	stallPatience   = 15 * time.Second // between two bytes of a program
	maxProgram      = 1 << 30
)

// errNotPublished reports a platform for which there is no kube-apiserver to download.
var errNotPublished = errors.New("kube-apiserver is published for Linux only")

// fetchError names the URL that could not be downloaded.
type fetchError struct {
	url string
	err error
}

func (e *fetchError) Error() string { return download.Redacted(e.url) + ": " + e.err.Error() }
func (e *fetchError) Unwrap() error { return e.err }

// getReady makes the complete directory of ready-made programs: links to those on PATH, and downloads of the others. Until
// it is complete it is staged beside its place, where the next call resumes. The caller holds the lock.
func (o BuildOptions) getReady(ctx context.Context, t target) error {
	if t.unreleased != nil {
		return t.unreleased
	}
	dir, staging := t.ready(), stagingDir(t.ready())
	found := t.release.onPath(ctx, o.versions, filepath.Dir(dir))
	var lacking []artifact
	for _, name := range Names() {
		if _, ok := found[name]; !ok {
			lacking = append(lacking, t.release.artifact(name, t.setting.mirror))
		}
	}
	if len(lacking) > 0 {
		if err := o.fetchAll(ctx, t.release, lacking, staging); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(staging, 0o755); err != nil {
		return fmt.Errorf("creating the download directory: %w", err)
	}
	for name, path := range found {
		fmt.Fprintf(o.Log, "devcluster: using %s, which is of the pinned version.\n", path)
		if err := link(path, filepath.Join(staging, name)); err != nil {
			return err
		}
	}
	return publish(staging, dir)
}

// stagingDir is where the programs of dir gather until all are there.
func stagingDir(dir string) string {
	return filepath.Join(filepath.Dir(dir), ".download-"+filepath.Base(dir))
}

func link(target, path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	if err := os.Symlink(target, path); err != nil {
		return fmt.Errorf("linking %s: %w", target, err)
	}
	return nil
}

// fetchAll downloads the artifacts that staging lacks. The checksums come first: they are small, and show within
// connectPatience whether the sites can be reached.
func (o BuildOptions) fetchAll(ctx context.Context, r release, artifacts []artifact, staging string) error {
	if r.goos != "linux" {
		return errNotPublished
	}
	client := &download.Client{HTTP: download.NewHTTP(o.Transport), Stall: o.stall, Meter: &download.Meter{Out: o.Log, Terminal: o.Terminal}}
	defer client.HTTP.CloseIdleConnections()
	sums, err := checksums(ctx, client, artifacts, o.connect)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(staging, 0o755); err != nil {
		return fmt.Errorf("creating the download directory: %w", err)
	}
	fmt.Fprintf(o.Log, "devcluster: downloading Kubernetes %s and etcd %s for %s/%s, once.\n", r.kubernetes, r.etcd, r.goos, r.goarch)
	for i, a := range artifacts {
		program := filepath.Join(staging, a.program)
		if info, err := os.Lstat(program); err == nil && info.Mode().IsRegular() {
			continue // an earlier call verified it, and stopped at a later one
		}
		client.Meter.Label(fmt.Sprintf("devcluster: %d of %d, %s:", i+1, len(artifacts), a.program))
		if err := a.fetch(ctx, client, sums[i], program); err != nil {
			return &fetchError{a.url, err}
		}
	}
	return nil
}

// checksums downloads the published checksums of all artifacts at once.
func checksums(ctx context.Context, client *download.Client, artifacts []artifact, patience time.Duration) ([]download.Checksum, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no response within %s", patience))
	defer cancel()
	sums, errs := make([]download.Checksum, len(artifacts)), make([]error, len(artifacts))
	var all sync.WaitGroup
	for i, a := range artifacts {
		all.Go(func() {
			data, err := client.Text(ctx, a.sums)
			if err == nil {
				sums[i], err = a.checksum(data)
			}
			if err != nil {
				errs[i] = &fetchError{a.sums, err}
			}
		})
	}
	all.Wait()
	if failed := slices.IndexFunc(errs, func(err error) bool { return err != nil }); failed >= 0 {
		return nil, errs[failed] // one is enough to know
	}
	return sums, nil
}

// fetch makes the executable at program.
func (a artifact) fetch(ctx context.Context, client *download.Client, sum download.Checksum, program string) error {
	if a.archived == "" {
		return client.File(ctx, a.url, program, 0o755, sum)
	}
	archive, unpacked := program+".tar.gz", program+".unpacked"
	if err := client.File(ctx, a.url, archive, 0o600, sum); err != nil {
		return err
	}
	if err := unpack(archive, a.archived, unpacked); err != nil {
		return err
	}
	if err := download.Sync(unpacked); err != nil {
		return err
	}
	if err := os.Rename(unpacked, program); err != nil {
		return fmt.Errorf("publishing %s: %w", program, err)
	}
	return nil
}

// unpack extracts one regular file of a gzipped tar archive.
func unpack(archive, member, to string) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", archive, err)
	}
	for entries := tar.NewReader(unzipped); ; {
		header, err := entries.Next()
		if err != nil {
			return fmt.Errorf("unpacking %s from %s: %w", member, archive, err)
		}
		if strings.TrimPrefix(header.Name, "./") == member && header.Typeflag == tar.TypeReg {
			return writeFile(to, entries, header.Size)
		}
	}
}

func writeFile(path string, from io.Reader, size int64) error {
	if size > maxProgram {
		return fmt.Errorf("unpacking %s: it is larger than %d bytes", path, int64(maxProgram))
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	_, err = io.CopyN(file, from, size)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("unpacking %s: %w", path, err)
	}
	return nil
}

// publish renames the staged directory once it holds the programs and nothing else.
func publish(staging, dir string) error {
	if lacks := missing(staging); len(lacks) > 0 {
		return fmt.Errorf("the downloaded set lacks %s", strings.Join(lacks, ", "))
	}
	entries, err := os.ReadDir(staging)
	if err != nil {
		return fmt.Errorf("reading the download directory: %w", err)
	}
	for _, entry := range entries {
		if !slices.Contains(Names(), entry.Name()) {
			if err := os.RemoveAll(filepath.Join(staging, entry.Name())); err != nil {
				return fmt.Errorf("cleaning the download directory: %w", err)
			}
		}
	}
	if err := download.Sync(staging); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil { // incomplete, or with links to programs that have changed
		return fmt.Errorf("removing the outdated %s: %w", dir, err)
	}
	if err := os.Rename(staging, dir); err != nil {
		return fmt.Errorf("publishing the downloaded programs: %w", err)
	}
	unfinished, err := filepath.Glob(stagingDir(filepath.Join(filepath.Dir(dir), "*"))) // of other versions
	for _, other := range unfinished {
		err = errors.Join(err, os.RemoveAll(other))
	}
	return errors.Join(err, download.Sync(filepath.Dir(dir)))
}
