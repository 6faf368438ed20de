package pfconf_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/machost/pfconf"
)

// stock is what macOS ships.
const stock = `#
# Default PF configuration file.
#
scrub-anchor "com.apple/*"
nat-anchor "com.apple/*"
rdr-anchor "com.apple/*"
dummynet-anchor "com.apple/*"
anchor "com.apple/*"
load anchor "com.apple" from "/etc/pf.anchors/com.apple"
`

var anchor = pfconf.Anchor{Name: "bullpen.runners", File: "/etc/pf.anchors/bullpen.runners"}

const (
	block = `# BEGIN bullpen.runners
anchor "bullpen.runners"
load anchor "bullpen.runners" from "/etc/pf.anchors/bullpen.runners"
# END bullpen.runners
`
	unmarked = `# bullpen.runners: keeps virtual machines away from private networks
anchor "bullpen.runners"
load anchor "bullpen.runners" from "/etc/pf.anchors/bullpen.runners"
`
	formerMarked = `# BEGIN tuist.runners
anchor "tuist.runners"
load anchor "tuist.runners" from "/etc/pf.anchors/tuist.runners"
# END tuist.runners
`
)

func TestAttach_HOST2_EndsWithOneBlockWhateverWasThere(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"an empty file":              {"", block},
		"as macOS ships it":          {stock, stock + block},
		"a block":                    {stock + block, stock + block},
		"two blocks":                 {stock + block + block, stock + block},
		"a block before Apple's":     {block + stock, stock + block},
		"the older unmarked lines":   {stock + unmarked, stock + block},
		"unmarked and marked":        {stock + unmarked + "\n" + block, stock + "\n" + block},
		"a former name":              {stock + formerMarked, stock + block},
		"no end of the last line":    {strings.TrimSuffix(stock, "\n"), stock + block},
		"a mark whose end is lost":   {"# BEGIN bullpen.runners\n" + stock, stock + block},
		"an end alone":               {"# END bullpen.runners\n" + stock, stock + block},
		"marks around Apple's hooks": {"# BEGIN bullpen.runners\n" + stock + "# END bullpen.runners\n", stock + block},
		"half a block": {
			stock + "# BEGIN bullpen.runners\nanchor \"bullpen.runners\"\n", stock + block,
		},
		"without quotes, with room and a comment": {
			stock + "  anchor\tbullpen.runners  # ours\nload  anchor bullpen.runners from /etc/x\n", stock + block,
		},
		"a statement that goes on in the next line": {
			stock + "load anchor \"bullpen.runners\" \\\n  from \"/etc/x\"\npass all\n", stock + "pass all\n" + block,
		},
		"somebody else's anchors": {
			stock + "anchor \"bullpen.runners.other\"\nanchor \"bullpen\"\nload anchor \"bullpen.runners2\" from \"/x\"\n",
			stock + "anchor \"bullpen.runners.other\"\nanchor \"bullpen\"\nload anchor \"bullpen.runners2\" from \"/x\"\n" + block,
		},
		"comments that do not name it stay": {
			stock + "# my own rules\nanchor \"bullpen.runners\"\n", stock + "# my own rules\n" + block,
		},
		"other line ends stay":         {"pass all\r\n" + "anchor \"bullpen.runners\"\r\n" + "block all\r\n", "pass all\r\nblock all\r\n" + block},
		"a last line that would go on": {"pass all \\\n", "pass all \\\n\n" + block},
		"a block inside of another":    {"# BEGIN bullpen.runners\n" + formerMarked + "# END bullpen.runners\n", block},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := pfconf.Attach(c.text, anchor, "tuist.runners")
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			again, err := pfconf.Attach(got, anchor, "tuist.runners")
			require.NoError(t, err)
			require.Equal(t, got, again, "applying twice changes nothing")
		})
	}
}

// The file of a host as an earlier bootstrap left it: the same lines twice, so that pf refused the whole file and kept
// the rules of before.
func TestAttach_HOST2_MendsTheFileThatPfRefused(t *testing.T) {
	broken := stock + unmarked + unmarked
	require.Equal(t, 2, loads(broken))
	mended, err := pfconf.Attach(broken, anchor)
	require.NoError(t, err)
	require.Equal(t, 1, loads(mended))
	require.Equal(t, stock+block, mended)
}

// A bootstrap that searched for its markers only, and not for the older lines, appended a second load.
func TestAttach_HOST2_UnmarkedLinesDoNotSurviveBesideABlock(t *testing.T) {
	mended, err := pfconf.Attach(stock+unmarked+block, anchor)
	require.NoError(t, err)
	require.Equal(t, 1, loads(mended))
}

func loads(text string) int { return strings.Count(text, `load anchor "bullpen.runners"`) }

func TestAttach_RefusesRulesInBraces(t *testing.T) {
	_, err := pfconf.Attach(stock+"anchor \"bullpen.runners\" {\n  pass all\n}\n", anchor)
	var inline *pfconf.InlineError
	require.ErrorAs(t, err, &inline)
	require.Equal(t, 10, inline.Line)
	require.Equal(t, "bullpen.runners", inline.Anchor)
}

func TestAttach_RefusesWhatPfConfCannotHold(t *testing.T) {
	for _, bad := range []pfconf.Anchor{
		{}, {Name: "a b", File: "/x"}, {Name: "a\"", File: "/x"}, {Name: "a\nb", File: "/x"}, {Name: "a/*", File: "/x"},
		{Name: "a", File: "x"}, {Name: "a", File: "/x y"}, {Name: "a", File: "/x\""},
	} {
		_, err := pfconf.Attach(stock, bad)
		require.Error(t, err, "%+v", bad)
		require.NotErrorAs(t, err, new(*pfconf.InlineError))
	}
}

// Whatever mixture of our blocks, older lines and other people's lines: the others stay, in their order, and one block is at the end.
func TestAttach_HOST2_AnyMixture(t *testing.T) {
	ours := []string{block, unmarked, formerMarked, "# BEGIN bullpen.runners\n", "# END bullpen.runners\n", "anchor bullpen.runners\n"}
	theirs := []string{
		"\n", "pass all\n", "# a comment\n", "anchor \"com.apple/*\"\n", "load anchor \"com.apple\" from \"/etc/pf.anchors/com.apple\"\n",
		"block drop in \\\n  from any\n", "table <x> { 10/8 }\n", "pass all\r\n", "anchor \"other\" {\n", "}\n",
	}
	rapid.Check(t, func(t *rapid.T) {
		var text, want strings.Builder
		open := false
		for _, mine := range rapid.SliceOfN(rapid.Bool(), 0, 30).Draw(t, "whose") {
			if mine {
				piece := rapid.SampledFrom(ours).Draw(t, "ours")
				// What stands between two marks is ours by definition, so others' lines are put outside of them.
				if piece == "# BEGIN bullpen.runners\n" {
					if open {
						continue
					}
					open = true
				}
				if piece == block || strings.HasPrefix(piece, "# END") {
					open = false
				}
				text.WriteString(piece)
				continue
			}
			if open {
				text.WriteString("# END bullpen.runners\n")
				open = false
			}
			piece := rapid.SampledFrom(theirs).Draw(t, "theirs")
			text.WriteString(piece)
			want.WriteString(piece)
		}
		got, err := pfconf.Attach(text.String(), anchor, "tuist.runners")
		if err != nil || got != want.String()+block {
			t.Fatalf("%v\nfrom:\n%s\ngot:\n%s\nwant:\n%s", err, text.String(), got, want.String()+block)
		}
	})
}

func FuzzAttach(f *testing.F) {
	for _, seed := range []string{"", stock, stock + block, stock + unmarked + block, "a\\", "# BEGIN bullpen.runners", "anchor \"bullpen.runners\" {"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := pfconf.Attach(text, anchor, "tuist.runners")
		if inline := (*pfconf.InlineError)(nil); errors.As(err, &inline) {
			return
		}
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(got, block))
		again, err := pfconf.Attach(got, anchor, "tuist.runners")
		require.NoError(t, err)
		require.Equal(t, got, again)
		rest := strings.TrimSuffix(got, block)
		bare, err := pfconf.Detach(rest, anchor.Name, "tuist.runners")
		require.NoError(t, err)
		require.Equal(t, rest, bare, "nothing of ours is left above the block")
	})
}
