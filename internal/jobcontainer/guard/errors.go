package guard

import (
	"errors"
	"io/fs"
)

// withoutPath takes off a path that the caller's text has already.
func withoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
