package guard

import (
	"errors"
	"os"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// release says what the image's files say. What cannot be read is left out.
func (g *guard) release(user string) wire.Release {
	r := wire.Release{Root: os.Geteuid() == 0}
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if content, err := readImageFile(path); err == nil && len(content) > 0 {
			r.ID, r.IDLike = osRelease(content)
			break
		}
	}
	r.Alpine = r.ID == "alpine" // GitHub's runner goes by the same line
	if passwd, err := readImageFile("/etc/passwd"); err == nil {
		r.Users = userNames(passwd, wire.MaxUsers)
	}
	if _, _, err := g.user(user); err != nil {
		if failed := new(notStarted); errors.As(err, &failed) {
			r.Denied = failed.denied
		}
	}
	return r
}
