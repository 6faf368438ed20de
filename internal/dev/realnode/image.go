package realnode

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image is an image of one layer, made of files of this machine.
type Image struct {
	// Ref is the name and tag that pods ask for.
	Ref        string
	Files      []File
	Entrypoint []string
	User       string
	Env        []string
	Volumes    []string // VOLUME of a Dockerfile: a runtime mounts a directory at each, with what the image has there
}

// File is a regular file, a directory or a link of an image.
type File struct {
	// Path in the image, absolute.
	Path string
	// From is the file of this machine that it is a copy of. Or Content, or Link, the target of a symbolic link. A directory has none.
	From    string
	Content []byte
	Link    string
	// Mode of what has Content, or of a directory. Zero: 0755.
	Mode fs.FileMode
	// Owner, user and group.
	Owner int
}

// Write writes the image as `docker save` does. The same files give the same bytes.
func (i Image) Write(to io.Writer) error {
	ref, err := name.NewTag(i.Ref)
	if err != nil {
		return fmt.Errorf("packing image %s: %w", i.Ref, err)
	}
	var layer bytes.Buffer
	if err := i.layer(&layer); err != nil {
		return fmt.Errorf("packing image %s: %w", i.Ref, err)
	}
	// It goes to a node on this machine: compressing would take longer than anything else.
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return fmt.Errorf("packing image %s: %w", i.Ref, err)
	}
	image, err := mutate.AppendLayers(empty.Image, content)
	if err != nil {
		return fmt.Errorf("packing image %s: %w", i.Ref, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("packing image %s: %w", i.Ref, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint, config.Config.User, config.Config.Env = i.Entrypoint, i.User, i.Env
	for _, declared := range i.Volumes {
		if config.Config.Volumes == nil {
			config.Config.Volumes = map[string]struct{}{}
		}
		config.Config.Volumes[declared] = struct{}{}
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("packing image %s: %w", i.Ref, err)
	}
	if err := tarball.Write(ref, image, to); err != nil {
		return fmt.Errorf("packing image %s: %w", i.Ref, err)
	}
	return nil
}

func (i Image) layer(to io.Writer) error {
	out := tar.NewWriter(to)
	made := map[string]bool{"/": true}
	for _, f := range i.Files {
		for _, dir := range parents(f.Path) {
			if !made[dir] {
				made[dir] = true
				if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755}); err != nil {
					return err
				}
			}
		}
		made[f.Path] = true
		if err := f.write(out); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return out.Close()
}

// parents are the directories above a path, the highest first.
func parents(file string) []string {
	var all []string
	for dir := path.Dir(file); dir != "/" && dir != "."; dir = path.Dir(dir) {
		all = append(all, dir)
	}
	slices.Reverse(all)
	return all
}

func (f File) write(out *tar.Writer) error {
	mode := int64(0o755)
	if f.Mode != 0 {
		mode = int64(f.Mode.Perm())
		if f.Mode&fs.ModeSticky != 0 {
			mode |= 0o1000
		}
	}
	header := tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Mode: mode, Uid: f.Owner, Gid: f.Owner}
	content := f.Content
	switch {
	case f.Link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
	case f.From != "":
		var err error
		if content, err = os.ReadFile(f.From); err != nil {
			return err
		}
		header.Typeflag, header.Size = tar.TypeReg, int64(len(content))
	case f.Content != nil:
		header.Typeflag, header.Size = tar.TypeReg, int64(len(content))
	default:
		header.Typeflag = tar.TypeDir
		header.Name += "/"
	}
	if err := out.WriteHeader(&header); err != nil {
		return err
	}
	_, err := out.Write(content)
	return err
}

// HostPrograms are programs of this machine with the shared libraries that they need, so that an image can be made without a registry. Each is found on
// PATH, and is at the same path in the image; /bin and /lib are links into /usr, as on Debian.
func HostPrograms(programs ...string) ([]File, error) {
	files := []File{{Path: "/bin", Link: "usr/bin"}, {Path: "/sbin", Link: "usr/sbin"}, {Path: "/lib", Link: "usr/lib"}, {Path: "/lib64", Link: "usr/lib64"}}
	seen := map[string]bool{}
	for _, program := range programs {
		found, err := exec.LookPath(program)
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", program, err)
		}
		added, err := withLibraries(found, seen)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", program, err)
		}
		files = append(files, added...)
	}
	return files, nil
}

// HostProgram is a file of this machine that is a program, with the shared libraries that it needs, at a path of the image.
func HostProgram(file, at string) ([]File, error) {
	files, err := withLibraries(file, map[string]bool{})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	files[0].Path = at
	return files, nil
}

// underUsr is a path as it is where /bin and /lib are links into /usr.
func underUsr(file string) string {
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(file, dir) {
			return "/usr" + file
		}
	}
	return file
}

func withLibraries(file string, seen map[string]bool) ([]File, error) {
	at := underUsr(file)
	if seen[at] {
		return nil, nil
	}
	seen[at] = true
	all := []File{{Path: at, From: file}}
	binary, err := elf.Open(file)
	if err != nil {
		if errors.As(err, new(*elf.FormatError)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil // a script, which may be shorter than a header
		}
		return nil, err
	}
	defer binary.Close() //nolint:errcheck // it was only read
	needed, err := binary.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, section := range binary.Progs {
		if section.Type != elf.PT_INTERP {
			continue
		}
		interpreter, err := io.ReadAll(section.Open())
		if err != nil {
			return nil, err
		}
		needed = append(needed, strings.TrimRight(string(interpreter), "\x00"))
	}
	for _, library := range needed {
		found, err := findLibrary(library)
		if err != nil {
			return nil, err
		}
		added, err := withLibraries(found, seen)
		if err != nil {
			return nil, err
		}
		all = append(all, added...)
	}
	return all, nil
}

// findLibrary searches where the dynamic linker does by default.
func findLibrary(library string) (string, error) {
	if filepath.IsAbs(library) {
		return library, nil
	}
	multiarch := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	for _, dir := range []string{"/lib/" + multiarch, "/usr/lib/" + multiarch, "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"} {
		at := filepath.Join(dir, library)
		if _, err := os.Stat(at); err == nil {
			return at, nil
		}
	}
	return "", fmt.Errorf("the shared library %s is in no directory of the dynamic linker: %w", library, fs.ErrNotExist)
}
