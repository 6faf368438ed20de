package autologin_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/machost/autologin"
)

// The vectors were computed by hand from the key: each byte of the password, then NULs.
func TestEncode_Vectors(t *testing.T) {
	for password, want := range map[string]string{
		"admin":       "1ced3f4abcbcddeaa3b91f",
		"a":           "1c895223d2bcddeaa3b91f",
		"abcdefghij":  "1ceb3147b7daba82cad31f",
		"abcdefghijk": "1ceb3147b7daba82cad374" + "7d895223d2bcddeaa3b91f",
	} {
		got, err := autologin.Encode(password)
		require.NoError(t, err)
		require.Equal(t, want, hex.EncodeToString(got), password)
	}
}

func TestEncode_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		password := rapid.StringOfN(rapid.Rune().Filter(func(r rune) bool { return r != 0 && r != '\n' && r != '\r' }), 1, 60, -1).Draw(t, "password")
		content, err := autologin.Encode(password)
		if strings.HasPrefix(password, "<sealed>") {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		require.Zero(t, len(content)%11)
		require.Greater(t, len(content), len(password), "at least one NUL")
		back, err := autologin.Decode(content)
		require.NoError(t, err)
		require.Equal(t, password, back)
	})
}

func TestDecode_HOST3_SealedIsNoPassword(t *testing.T) {
	// As loginwindow leaves it: the text, encoded like a password.
	content := []byte("<sealed>\x00\x00\x00")
	for i, k := range []byte{0x7D, 0x89, 0x52, 0x23, 0xD2, 0xBC, 0xDD, 0xEA, 0xA3, 0xB9, 0x1F} {
		content[i] ^= k
	}
	_, err := autologin.Decode(content)
	require.ErrorIs(t, err, autologin.ErrSealed)
	_, err = autologin.Decode(content[:8])
	require.ErrorIs(t, err, autologin.ErrSealed, "without what fills it up, too")
}

func TestDecode_RefusesWhatIsNoPassword(t *testing.T) {
	for name, content := range map[string][]byte{"nothing": nil, "one byte": {1}, "no end": []byte("abcdefghijk")} {
		_, err := autologin.Decode(content)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, autologin.ErrSealed, name)
	}
}

func TestEncode_HOST6_RefusesWithoutRepeating(t *testing.T) {
	for _, bad := range []string{"", "a\x00b", "secret\n", "se\rcret", "\xff\xfesecret", "<sealed>"} {
		_, err := autologin.Encode(bad)
		var problem *autologin.PasswordError
		require.ErrorAs(t, err, &problem)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, good := range []string{`it's "quoted"`, "påsswörd", "$(rm -rf /)", " ", "密码"} {
		_, err := autologin.Encode(good)
		require.NoError(t, err, good)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0x7d, 0x89})
	f.Fuzz(func(t *testing.T, content []byte) {
		password, err := autologin.Decode(content)
		if err != nil {
			return
		}
		again, err := autologin.Encode(password)
		if err != nil {
			return // Encode could not have written it
		}
		back, err := autologin.Decode(again)
		require.NoError(t, err)
		require.Equal(t, password, back)
	})
}
