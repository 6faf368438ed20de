package options

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplit(t *testing.T) {
	for text, want := range map[string][]string{
		"":             nil,
		" \t\n":        nil,
		"a  b\nc\r\nd": {"a", "b", "c", "d"},
		`--health-cmd "pg_isready -U postgres" --health-retries 5`: {"--health-cmd", "pg_isready -U postgres", "--health-retries", "5"},
		`--health-cmd="redis-cli ping"`:                            {"--health-cmd=redis-cli ping"},
		`--health-cmd 'redis-cli ping'`:                            {"--health-cmd", "redis-cli ping"},
		`--health-cmd='redis-cli ping' -e A='b c'`:                 {"--health-cmd=redis-cli ping", "-e", "A=b c"},
		`--health-cmd "sh -c 'test -e /x'"`:                        {"--health-cmd", "sh -c 'test -e /x'"},
		`--health-cmd 'sh -c "test -e /x"'`:                        {"--health-cmd", `sh -c "test -e /x"`},
		`-e A=it's -e B=it's`:                                      {"-e", "A=it's", "-e", "B=it's"},
		`-e A=it's -e B=dogs'`:                                     {"-e", "A=it's", "-e", "B=dogs'"},
		`'don't stop' x`:                                           {"don't stop", "x"},
		`-e 'A=b`:                                                  {"-e", "'A=b"},
		`"say \"hi\""`:                                             {`say "hi"`},
		`\"a b\"`:                                                  {`"a`, `b"`},
		`C:\dir "a\\" "b\\\"c"`:                                    {`C:\dir`, `a\`, `b\"c`},
		`-e A="" ""`:                                               {"-e", "A=", ""},
		`"a""b"`:                                                   {`a"b`},
		`"it is $HOME"`:                                            {"it is $HOME"},
		"--health-cmd x \\\n--health-retries 2":                    {"--health-cmd", "x", "--health-retries", "2"},
		"\"a\nb\"":                                                 {"a\nb"},
	} {
		got, err := Split(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{`"`, `a "b`, `a "b\" c`} {
		_, err := Split(text)
		require.EqualError(t, err, "Arguments are invalid: a double quote is not closed.", text)
	}
}

// What the runner sent for `args: echo "a b" c`.
func TestJoin_PutsQuotedPiecesTogether(t *testing.T) {
	got, err := Join([]string{"echo", `"a`, `b"`, "c"})
	require.NoError(t, err)
	require.Equal(t, []string{"echo", "a b", "c"}, got)
	got, err = Join([]string{"-c", `"a`, "", `b"`})
	require.NoError(t, err)
	require.Equal(t, []string{"-c", "a  b"}, got)
}

func FuzzSplit(f *testing.F) {
	for _, seed := range []string{`a "b c" 'd e' f=\"g`, `\\\"`, `"" ''`, "\\\n", `'a'b' c`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words, err := Split(text)
		if err != nil {
			return
		}
		// Quoted as the runner quotes, the words come back.
		quoted := make([]string, len(words))
		for i, word := range words {
			quoted[i] = quote(word)
		}
		again, err := Split(strings.Join(quoted, " "))
		require.NoError(t, err)
		require.Equal(t, words, again)
	})
}

// quote returns a word between double quotes: backslashes before a quote, and at the end, are doubled.
func quote(word string) string {
	var b strings.Builder
	backslashes := 0
	b.WriteByte('"')
	for i := range len(word) {
		switch word[i] {
		case '\\':
			backslashes++
		case '"':
			b.WriteString(strings.Repeat(`\`, backslashes+1))
			backslashes = 0
		default:
			backslashes = 0
		}
		b.WriteByte(word[i])
	}
	b.WriteString(strings.Repeat(`\`, backslashes) + `"`)
	return b.String()
}
