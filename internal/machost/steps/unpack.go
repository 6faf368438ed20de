package steps

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// Bounds of what is unpacked.
const (
	maxUnpacked = 4 << 30
	maxEntries  = 20_000
)

// EscapeError reports that an archive would write outside of its directory.
type EscapeError struct{ Entry string }

// Error names the entry.
func (e *EscapeError) Error() string {
	return fmt.Sprintf("entry %q is outside of the archive's directory", e.Entry)
}

// unpack extracts an archive into a directory. The archive's digest was checked, and it is still handled as untrusted: no entry leaves the
// directory, none goes through a link, and the size is bounded.
func unpack(ctx context.Context, h machost.Host, archive, kind, dir string) error {
	file, err := h.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	u := &unpacker{ctx: ctx, host: h, dir: dir, links: map[string]bool{}}
	if kind == "zip" {
		info, err := h.Stat(archive)
		if err != nil {
			return err
		}
		err = u.zip(file, info.Size)
		if err != nil {
			return err
		}
	} else if err := u.tar(file); err != nil {
		return err
	}
	info, err := h.Stat(path.Join(dir, tartProgram))
	if err != nil || info.IsDir || info.Target != "" || info.Mode&0o111 == 0 {
		return errors.Join(fmt.Errorf("it does not hold the program %s", tartProgram), err)
	}
	return nil
}

type unpacker struct {
	ctx     context.Context //nolint:containedctx // it lives as long as one call of unpack
	host    machost.Host
	dir     string
	links   map[string]bool
	entries int
	left    int64
}

func (u *unpacker) tar(file io.Reader) error {
	u.left = maxUnpacked
	zipped, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	entries := tar.NewReader(zipped)
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		mode := fs.FileMode(header.Mode).Perm() //nolint:gosec // the bits of permission alone
		switch header.Typeflag {
		case tar.TypeReg:
		case tar.TypeDir:
			mode |= fs.ModeDir
		case tar.TypeSymlink:
			mode |= fs.ModeSymlink
		case tar.TypeXGlobalHeader:
			continue
		default:
			return fmt.Errorf("entry %q is neither a file nor a directory nor a symbolic link", header.Name)
		}
		if err := u.entry(header.Name, mode, header.Linkname, entries); err != nil {
			return err
		}
	}
}

func (u *unpacker) zip(file io.ReaderAt, size int64) error {
	u.left = maxUnpacked
	archive, err := zip.NewReader(file, size)
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	for _, f := range archive.File {
		if err := u.zipEntry(f); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) zipEntry(f *zip.File) error {
	content, err := f.Open()
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	defer content.Close()
	target := ""
	if f.Mode()&fs.ModeSymlink != 0 {
		text, err := io.ReadAll(io.LimitReader(content, 4096))
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		target = string(text)
	}
	return u.entry(f.Name, f.Mode(), target, content)
}

func (u *unpacker) entry(name string, mode fs.FileMode, target string, content io.Reader) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	if u.entries++; u.entries > maxEntries {
		return fmt.Errorf("it has more than %d entries", maxEntries)
	}
	clean := path.Clean(name)
	if !filepath.IsLocal(clean) || strings.ContainsAny(name, "\\\x00") {
		return &EscapeError{name}
	}
	if clean == "." {
		return nil
	}
	for above := path.Dir(clean); above != "."; above = path.Dir(above) {
		if u.links[folded(above)] {
			return &EscapeError{name}
		}
	}
	at := path.Join(u.dir, clean)
	switch {
	case mode.IsDir():
		return u.host.MakeDir(at, machost.Attributes{Mode: 0o755})
	case mode&fs.ModeSymlink != 0:
		if !staysInside(path.Dir(clean), target) {
			return &EscapeError{name}
		}
		u.links[folded(clean)] = true
		return u.host.Symlink(target, at)
	case !mode.IsRegular():
		return fmt.Errorf("entry %q is neither a file nor a directory nor a symbolic link", name)
	}
	delete(u.links, folded(clean)) // a file in its place
	attributes := machost.Attributes{Mode: 0o644}
	if mode&0o111 != 0 {
		attributes.Mode = 0o755
	}
	bounded := &boundedReader{from: content, left: &u.left}
	return u.host.WriteFile(at, bounded, attributes)
}

// folded is a name as the Mac's file system compares it.
func folded(name string) string { return strings.ToLower(name) }

// staysInside reports whether a link in a directory of the archive leads to something in it, through any other links: ".." elements come
// first, through directories that are no links.
func staysInside(dir, target string) bool {
	if target == "" || path.IsAbs(target) || strings.ContainsAny(target, "\\\x00") {
		return false
	}
	down := target
	for strings.HasPrefix(down, "../") {
		down = strings.TrimLeft(down[3:], "/")
	}
	for _, part := range strings.Split(down, "/") {
		if part == ".." && down != ".." {
			return false
		}
	}
	return filepath.IsLocal(path.Join(dir, target))
}

// boundedReader fails when more is read than is left, over all entries.
type boundedReader struct {
	from io.Reader
	left *int64
}

// Read reads on.
func (r *boundedReader) Read(into []byte) (int, error) {
	n, err := r.from.Read(into)
	if *r.left -= int64(n); *r.left < 0 {
		return n, fmt.Errorf("it unpacks to more than %d MiB", maxUnpacked>>20)
	}
	return n, err
}
