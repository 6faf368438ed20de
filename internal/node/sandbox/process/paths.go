package process

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// The characters that may directly precede and follow a path for it to count as one. Any other (letters, digits, `_ - . ~ % +`, a closing
// brace, any non-ASCII character, …) could make it part of another name, which is left alone.
const (
	pathMayFollow  = " \t\r\n=:,;'\"`([{<>|&!@"
	pathMayPrecede = " \t\r\n=:,;'\"`)]}<>|&!#/"
)

// Substitute replaces in s every path that equals a mountPath of mounts or lies below it by the path of the same file on the
// host. It is the process sandbox's stand-in for a mount namespace:
//
//   - a path counts only at a boundary: at the start of s or after one of white space = : , ; ' " ` ( [ { < > | & ! @, and it must
//     be followed by the end of s, by / or by one of white space = : , ; ' " ` ) ] } < > | & ! #. With /jobs mounted, /jobs/a and
//     PATH=/bin:/jobs/bin are replaced; /jobsspace, foo/jobs and http://host/jobs are not;
//   - the longest mountPath that matches wins (/jobs/cache over /jobs);
//   - a replacement is not expanded again.
//
// The mountPaths and host paths of mounts are absolute and clean.
func Substitute(s string, mounts []sandbox.Mount) string {
	if len(mounts) == 0 || !strings.Contains(s, "/") {
		return s
	}
	ordered := slices.Clone(mounts)
	slices.SortStableFunc(ordered, func(a, b sandbox.Mount) int { return cmp.Compare(len(b.MountPath), len(a.MountPath)) })

	var out strings.Builder
	for i := 0; i < len(s); {
		if m, ok := mountAt(s, i, ordered); ok {
			out.WriteString(m.HostPath)
			i += len(m.MountPath)
			continue
		}
		out.WriteByte(s[i])
		i++
	}
	return out.String()
}

// mountAt finds the mount whose path begins at s[i]; ordered has the longest mountPath first.
func mountAt(s string, i int, ordered []sandbox.Mount) (sandbox.Mount, bool) {
	if s[i] != '/' || i > 0 && strings.IndexByte(pathMayFollow, s[i-1]) < 0 {
		return sandbox.Mount{}, false
	}
	for _, m := range ordered {
		rest, found := strings.CutPrefix(s[i:], m.MountPath)
		if found && (rest == "" || strings.IndexByte(pathMayPrecede, rest[0]) >= 0) {
			return m, true
		}
	}
	return sandbox.Mount{}, false
}

// underMount reports whether a mountPath-side path lies in one of the mounts.
func underMount(path string, mounts []sandbox.Mount) bool {
	path = filepath.Clean(path)
	for _, m := range mounts {
		if path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/") {
			return true
		}
	}
	return false
}
