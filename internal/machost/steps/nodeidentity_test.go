package steps

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// A label may look like an argument, and a name like markup.
func TestPlistIdentity_IsWhatThePlistWasRenderedFrom(t *testing.T) {
	for _, name := range []string{"mac-1", "UserName", "<b>&amp;", "ünï", "--state-dir"} {
		var c machost.Config
		c.Node.Name, c.Node.StateDir = name, "/Users/ci/Library/Bullpen/"+name
		c.Node.Labels = map[string]string{"HOME": "--name", "a": "UserName"}
		user := account{Name: "ci-" + name, Home: "/Users/" + name}
		require.Equal(t, identityOf(c, user), plistIdentity(nodePlist(c, user, "/opt/tart")))
	}
}

func TestPlistIdentity_OfAnotherFileIsNone(t *testing.T) {
	for _, content := range []string{"", "no plist", "<plist><array/></plist>", "<plist><dict><key>UserName</key><integer>7</integer></dict></plist>"} {
		require.Zero(t, plistIdentity([]byte(content)), content)
	}
}

// An earlier release, or a person, may have left any file there.
func FuzzPlistIdentity(f *testing.F) {
	f.Add(nodePlist(machost.Config{}, account{Name: "ci", Home: "/Users/ci"}, "/opt/tart"))
	f.Add([]byte(`{UserName = ci; ProgramArguments = ("--name");}`))
	f.Add([]byte("bplist00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		require.Equal(t, plistIdentity(content), plistIdentity(content))
	})
}
