package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const (
	layoutDir    = "oci"
	checksumFile = "SHA256SUMS"
	prefix       = "bullpen-"
)

func (r release) archiveName() string { return prefix + r.Version + ".oci.tar" }

func (r release) sbomName(m member) string {
	return prefix + r.Version + "-" + m.Platform.OS + "-" + m.Platform.Architecture + ".cdx.json"
}

// write puts a set into a directory: a layout with everything, for tools that copy to registries; an archive of the images
// alone, for nodes; and the SBOMs. The archive lists the one index and nothing else, because containerd unpacks whatever is
// listed, and an SBOM cannot be unpacked.
func write(dist string, r release, s set) error {
	if err := os.MkdirAll(dist, 0o755); err != nil { //nolint:gosec // as any build's output
		return err
	}
	if err := clean(dist); err != nil {
		return err
	}
	work, err := os.MkdirTemp(dist, ".writing-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	bare, whole := filepath.Join(work, "bare"), filepath.Join(work, layoutDir)
	if err := writeLayout(bare, r, s, false); err != nil {
		return err
	}
	if err := writeLayout(whole, r, s, true); err != nil {
		return err
	}
	if err := archive(bare, filepath.Join(work, r.archiveName()), r.Created); err != nil {
		return err
	}
	names := []string{r.archiveName()}
	for _, m := range s.Members {
		if err := os.WriteFile(filepath.Join(work, r.sbomName(m)), m.SBOM, 0o644); err != nil { //nolint:gosec // world-readable
			return err
		}
		names = append(names, r.sbomName(m))
	}
	if err := writeChecksums(work, names); err != nil {
		return err
	}
	for _, made := range append(names, checksumFile, layoutDir) {
		if err := os.Rename(filepath.Join(work, made), filepath.Join(dist, made)); err != nil {
			return err
		}
	}
	return nil
}

// clean removes what an earlier build wrote, so that no two versions lie beside each other with one list of checksums.
func clean(dist string) error {
	entries, err := os.ReadDir(dist)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		n := entry.Name()
		ours := n == layoutDir || n == checksumFile ||
			strings.HasPrefix(n, prefix) && (strings.HasSuffix(n, ".oci.tar") || strings.HasSuffix(n, ".cdx.json"))
		if ours {
			if err := os.RemoveAll(filepath.Join(dist, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeLayout(dir string, r release, s set, referrers bool) error {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	if err := path.AppendIndex(s.Index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.Version,
		"io.containerd.image.name":          r.Name + ":" + r.Version,
	})); err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	if !referrers {
		return nil
	}
	for _, m := range s.Members {
		if err := path.AppendImage(m.Referrer); err != nil {
			return fmt.Errorf("writing the layout: %w", err)
		}
	}
	return nil
}

// archive packs a layout, in the order of its names.
func archive(dir, file string, created time.Time) (err error) {
	out, err := os.Create(file) //nolint:gosec // in our own directory
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return archiveEntry(w, path, filepath.ToSlash(relative), entry.IsDir(), created)
	})
	if err != nil {
		return fmt.Errorf("packing the layout: %w", err)
	}
	return w.Close()
}

func archiveEntry(w *tar.Writer, path, name string, dir bool, created time.Time) error {
	header := &tar.Header{Name: name, Mode: 0o644, ModTime: created, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}
	if dir {
		header.Name, header.Mode, header.Typeflag = name+"/", 0o755, tar.TypeDir
		return w.WriteHeader(header)
	}
	in, err := os.Open(path) //nolint:gosec // in our own directory
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}

func writeChecksums(dir string, names []string) error {
	slices.Sort(names)
	var lines strings.Builder
	for _, n := range names {
		content, err := os.ReadFile(filepath.Join(dir, n)) //nolint:gosec // in our own directory
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		lines.WriteString(hex.EncodeToString(sum[:]) + "  " + n + "\n")
	}
	return os.WriteFile(filepath.Join(dir, checksumFile), []byte(lines.String()), 0o644) //nolint:gosec // world-readable
}

// describe prints the digests, which is what two builds of the same sources have in common.
func describe(out io.Writer, dist string, r release, s set) error {
	index, err := s.Index.Digest()
	if err != nil {
		return err
	}
	lines := fmt.Sprintf("image        %s:%s\nindex        %s\n", r.Name, r.Version, index)
	for _, m := range s.Members {
		image, err := m.Image.Digest()
		if err != nil {
			return err
		}
		referrer, err := m.Referrer.Digest()
		if err != nil {
			return err
		}
		lines += fmt.Sprintf("%-12s %s\n  its SBOM   %s\n", m.Platform.String(), image, referrer)
	}
	_, err = fmt.Fprintf(out, "%sarchive      %s\nlayout       %s\n", lines, filepath.Join(dist, r.archiveName()), filepath.Join(dist, layoutDir))
	return err
}

// publish pushes the images, then the SBOMs, then the tag, so that a client that sees the tag finds everything.
// Credentials are those of `docker login`. It returns the name by which the release can be pinned.
func publish(ctx context.Context, repository string, r release, s set) (string, error) {
	repo, err := name.NewRepository(repository)
	if err != nil {
		return "", fmt.Errorf("reading -push: %w", err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent("bullpen-images")}
	index, err := s.Index.Digest()
	if err != nil {
		return "", err
	}
	if err := remote.WriteIndex(repo.Digest(index.String()), s.Index, options...); err != nil {
		return "", fmt.Errorf("pushing the images to %s: %w", repo, err)
	}
	for _, m := range s.Members {
		digest, err := m.Referrer.Digest()
		if err != nil {
			return "", err
		}
		if err := remote.Write(repo.Digest(digest.String()), m.Referrer, options...); err != nil {
			return "", fmt.Errorf("pushing an SBOM to %s: %w", repo, err)
		}
	}
	tag := repo.Tag(r.Version)
	if err := remote.Tag(tag, s.Index, options...); err != nil {
		return "", fmt.Errorf("tagging %s: %w", tag, err)
	}
	return tag.String() + "@" + index.String(), nil
}
