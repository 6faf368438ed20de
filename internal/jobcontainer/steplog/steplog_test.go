package steplog

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestCommands(t *testing.T) {
	require.Equal(t, "::error::100%25 wrong%0D%0A::set-env name=A::1", Error("100% wrong\r\n::set-env name=A::1"))
	require.Equal(t, "::warning::a%0Ab", Warning("a\nb"))
	require.Equal(t, "::debug::a%0Ab", Debug("a\nb"))
	require.Equal(t, "##[group]Starting db service container", Group("Starting db service container"))
	require.Equal(t, "##[group]db  # #[endgroup] ::error::x", Group("db\r\n##[endgroup]\n::error::x"))
	require.Equal(t, "##[endgroup]", EndGroup())
}

// What the runner makes of the data is the text again (its ActionCommand.UnescapeData).
func TestError_IsReadBack(t *testing.T) {
	for _, text := range []string{"plain", "a\nb\rc", "%", "%0A", "%250A", "::error::x", "##[group]", "é\u200b"} {
		line := Error(text)
		require.NotContains(t, line, "\n")
		data, found := strings.CutPrefix(line, "::error::")
		require.True(t, found)
		for _, mapping := range [][2]string{{"%0D", "\r"}, {"%0A", "\n"}, {"%25", "%"}} {
			data = strings.ReplaceAll(data, mapping[0], mapping[1])
		}
		require.Equal(t, text, data)
	}
}

func TestLine_LeavesOrdinaryTextAlone(t *testing.T) {
	for _, line := range []string{"", "LOG:  database system is ready", "std::string x", "a ::error::b", "  at foo::bar", "\x1b[32mok\x1b[0m", "# comment", "#[x]", "##", "👩‍💻 café", ": :", "[::1]:80", "\ttab"} {
		require.Equal(t, line, Line(line))
	}
}

func TestLine_HidesCommands(t *testing.T) {
	for line, want := range map[string]string{
		"::error::x":                "| ::error::x",
		" \t ::add-mask::x":         "| ::add-mask::x",
		"\u00a0\u2003::error::x":    "| ::error::x",
		"\ufeff::error::x":          "| ::error::x",
		":\u200b:error::x":          "| ::error::x",
		"\u00ad:\u00ad:error::x":    "| ::error::x",
		"\x00::error::x":            "| ::error::x",
		"\x1b::error::x":            "| ::error::x",
		"#\x1b#[error]x":            "# #[error]x",
		"text ##[error]x":           "text # #[error]x",
		"##[group]a ##[endgroup]":   "# #[group]a # #[endgroup]",
		"#\u200d#[error]x":          "# #[error]x",
		"::warning::##[error]":      "| ::warning::# #[error]",
		"###[error]":                "## #[error]",
		"::stop-commands::endtoken": "| ::stop-commands::endtoken",
	} {
		require.Equal(t, want, Line(line), "%q", line)
	}
}

func TestLines(t *testing.T) {
	require.Nil(t, Lines(""))
	require.Equal(t, []string{"a", "", "b", "| ::error::x", "c"}, Lines("a\n\nb\r::error::x\r\nc\n"))
	require.Equal(t, []string{""}, Lines("\n\n")[:1])
}

// FuzzLine reads lines as the runner does, and as it would if its comparison ignored everything that cannot be seen.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{"::error::x", "##[group]", ":\u200b:x", "a\r::b", "\u0300::x", "#\ufe0f#[", "\xff::x", "#\u0488#[", "#\u07b5\u0488#[", ":\t:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, line := range append(Lines(text), Line(text), strings.TrimPrefix(Group(text), "##[group]")) {
			require.NotContains(t, line, "\n")
			require.NotContains(t, line, "\r")
			for _, seen := range []string{line, strings.Map(func(r rune) rune {
				if r != '\t' && !unicode.IsGraphic(r) || unicode.IsMark(r) {
					return -1
				}
				return r
			}, line)} {
				require.False(t, strings.HasPrefix(strings.TrimSpace(seen), "::"), "%q", line)
				require.NotContains(t, seen, "##[", "%q", line)
			}
		}
	})
}
