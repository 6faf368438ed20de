package steps

import (
	"strings"
	"testing"
	"unicode/utf8"

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

// Whatever a file holds, what is read from it is what a job that is rendered from that would say.
func FuzzPlistIdentity(f *testing.F) {
	f.Add(nodePlist(machost.Config{}, account{Name: "ci", Home: "/Users/ci"}, "/opt/tart"))
	f.Add([]byte(`{UserName = ci; ProgramArguments = ("--name");}`))
	f.Add([]byte("bplist00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		read := plistIdentity(content)
		for _, text := range []string{read.User, read.Home, read.Node, read.StateDir} {
			if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r >= 0xfffd }) {
				return // XML has no such text
			}
		}
		var c machost.Config
		c.Node.Name, c.Node.StateDir = read.Node, read.StateDir
		require.Equal(t, read, plistIdentity(nodePlist(c, account{Name: read.User, Home: read.Home}, "/opt/tart")))
	})
}
