//go:build unix

package tartcli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/node/tartcli"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// An image of 100 GB may take hours: a pull may take as long as something arrives, and no longer.
func TestPull_IsEndedBySilenceAndNotByItsDuration(t *testing.T) {
	t.Parallel()
	const pulls = `while ! test -e "$TART_HOME/arrived"; do sleep 0.01; done`
	const looks = 300 // five times the silence that is allowed
	for name, arrives := range map[string]func(file string, look int) error{
		"data": func(file string, look int) error { return os.Truncate(file, int64(look)) },
		"a file that is rewritten": func(file string, look int) error {
			at := time.Now().Add(time.Duration(look) * time.Hour)
			return os.Chtimes(file, at, at)
		},
		"a look before it is too late": func(file string, look int) error {
			if look%50 != 0 {
				return nil
			}
			return os.WriteFile(fmt.Sprintf("%s-%d", file, look), []byte("x"), 0o600)
		},
		"nothing": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			file := filepath.Join(home, "tmp", "0123456789abcdef0123456789abcdef", "disk.img")
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
			require.NoError(t, os.WriteFile(file, nil, 0o600))
			look := 0
			c, err := tartcli.New(tartcli.Options{
				Command: []string{"sh", "-c", pulls, "sh"}, Home: home,
				Pause: func(ctx context.Context, d time.Duration) {
					if d != 15*time.Second {
						t.Errorf("paused for %s: a quarter of an hour has 60 checks", d)
					}
					look++
					switch {
					case arrives == nil:
					case look <= looks:
						if err := arrives(file, look); err != nil {
							t.Errorf("writing what arrives: %v", err)
						}
					default:
						if err := os.WriteFile(filepath.Join(home, "arrived"), nil, 0o600); err != nil {
							t.Errorf("ending the pull: %v", err)
						}
						<-ctx.Done()
					}
				},
			})
			require.NoError(t, err)
			err = c.Pull(t.Context(), image)
			if arrives != nil {
				require.NoError(t, err)
				require.Greater(t, look, looks)
				return
			}
			require.Equal(t, tartcli.KindTimeout, tartcli.KindOf(err))
			require.ErrorContains(t, err, "pulling "+image+": no output and no data for 15m0s")
		})
	}
}

// Each start of a runner is a clone, which must not keep a pull alive that brings nothing; nor may signs without end.
func TestPull_EndsAlthoughSomethingHappens(t *testing.T) {
	t.Parallel()
	for want, happens := range map[string]func(home string, look int) error{
		"no output and no data for 15m0s": func(home string, look int) error {
			at := time.Now().Add(time.Duration(look) * time.Hour)
			clone := filepath.Join(home, "tmp", "6F9619FF-8B86-D011-B42D-00CF4FC964FF")
			err := os.Mkdir(clone, 0o700)
			if look%2 == 0 {
				err = os.Remove(clone)
			}
			return errors.Join(err, os.Chtimes(filepath.Join(home, "tmp"), at, at), os.Chtimes(filepath.Join(home, "cache"), at, at))
		},
		"not complete after 24h0m0s": func(home string, look int) error {
			return os.Truncate(filepath.Join(home, "tmp", "0123456789abcdef0123456789abcdef", "disk.img"), int64(look))
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			pull := filepath.Join(home, "tmp", "0123456789abcdef0123456789abcdef")
			require.NoError(t, os.MkdirAll(pull, 0o700))
			require.NoError(t, os.Mkdir(filepath.Join(home, "cache"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(pull, "disk.img"), nil, 0o600))
			look := 0
			c, err := tartcli.New(tartcli.Options{
				Command: []string{"sh", "-c", "exec sleep 1000", "sh"}, Home: home,
				Pause: func(context.Context, time.Duration) {
					look++
					if err := happens(home, look); err != nil {
						t.Errorf("look %d: %v", look, err)
					}
				},
			})
			require.NoError(t, err)
			err = c.Pull(await.Context(t), image)
			require.Equal(t, tartcli.KindTimeout, tartcli.KindOf(err))
			require.ErrorContains(t, err, want)
		})
	}
}
