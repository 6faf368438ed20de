package letter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

func key(t testing.TB) *PrivateKey {
	t.Helper()
	key, err := NewPrivateKey()
	require.NoError(t, err)
	return key
}

// services is a request of so many services, of which the last has credentials of that length.
func services(count, secret int) jobcontainer.Request {
	request := jobcontainer.Request{ID: "r-1"}
	for i := range count {
		request.Containers = append(request.Containers, jobcontainer.Wanted{
			Role: jobcontainer.RoleService, Position: i, Image: fmt.Sprintf("registry.example/team-%d/postgres:1%d", i, i),
		})
	}
	password := make([]byte, secret)
	for i := range password {
		password[i] = byte('!' + rand.IntN(90))
	}
	request.Containers[count-1].Credentials = &jobcontainer.Credentials{Username: "u", Password: string(password)}
	return request
}

func TestSeal_JOB3_OnlyTheControllersKeyOpensIt(t *testing.T) {
	mine, other := key(t), key(t)
	request := services(3, 40)
	text, err := Seal(request, mine.Public())
	require.NoError(t, err)
	require.NotContains(t, text, "postgres")
	again, err := ParsePrivateKey(mine.Bytes())
	require.NoError(t, err)
	opened, err := again.Open(text)
	require.NoError(t, err)
	require.Equal(t, request, opened)

	_, err = other.Open(text)
	require.ErrorIs(t, err, ErrOtherKey)
	changed := []byte(text)
	changed[len(changed)/2] ^= 1
	_, err = mine.Open(string(changed))
	require.Error(t, err)
	require.NotContains(t, err.Error(), text)
	_, err = mine.Open(text[:len(text)-8])
	require.ErrorIs(t, err, ErrOtherKey)
	_, err = mine.Open("not base64!")
	require.ErrorIs(t, err, ErrMalformed)
	_, err = mine.Open(strings.Repeat("A", MaxRequestText+1))
	require.ErrorIs(t, err, ErrMalformed)
	_, err = Seal(request, "AAAA")
	require.Error(t, err)
	_, err = Seal(request, "no key")
	require.Error(t, err)
	_, err = Seal(services(1, 100_000), mine.Public())
	require.ErrorContains(t, err, "at most")
}

// A job writes what it likes: a few bytes that stand for gigabytes, or fields that this release does not know.
func TestUnpack_IsBoundedAndStrict(t *testing.T) {
	bomb, _, err := pack(strings.Repeat("a", 10<<20))
	require.NoError(t, err)
	require.Less(t, len(bomb), 20<<10)
	var value string
	require.ErrorIs(t, unpack(bomb, 1<<20, false, &value), ErrMalformed)
	require.NoError(t, unpack(bomb, 11<<20, false, &value))

	newer, _, err := pack(map[string]any{"id": "a", "privileged": true})
	require.NoError(t, err)
	var request jobcontainer.Request
	require.ErrorIs(t, unpack(newer, 1<<20, true, &request), ErrMalformed)
	require.NoError(t, unpack(newer, 1<<20, false, &request))
	require.ErrorIs(t, unpack([]byte("x"), 1<<20, true, &request), ErrMalformed)
}

// The kubelet cuts each message to its share of 12 KiB, those that it has reported before included.
func TestParts_ArriveWhateverAKubeletCuts(t *testing.T) {
	mine := key(t)
	for _, c := range []struct{ services, secret, containers int }{{1, 1, 7}, {17, 40, 7}, {17, 2000, 7}, {1, 100, 60}, {1, 20, 90}} {
		request := services(c.services, c.secret)
		text, err := Seal(request, mine.Public())
		require.NoError(t, err)
		var messages []string
		from, whole, got := 0, false, ""
		for n := c.containers; !whole; n++ {
			require.Less(t, len(messages), 9, "parts of a request of %d characters in a pod of %d containers", len(text), n)
			message, err := Cut("r-1", text, from, Limit(n))
			require.NoError(t, err)
			messages = append(messages, message)
			var parts []Part
			for i, m := range messages { // each time again, cut as with the containers of now
				m = m[:min(len(m), maxMessage, maxOfPod/n)]
				require.Equal(t, messages[i], m, "nothing of it is lost")
				part, err := ParsePart(m)
				require.NoError(t, err)
				parts = append(parts, part)
			}
			got, whole = Join("r-1", len(text), parts)
			from = len(got)
		}
		opened, err := mine.Open(got)
		require.NoError(t, err)
		require.Equal(t, request, opened)
	}
}

func TestJoin_TakesWhatIsThereFromTheBeginning(t *testing.T) {
	part := func(from int, text string) Part { return Part{ID: "a", Total: 6, From: from, Text: text} }
	for name, c := range map[string]struct {
		parts []Part
		text  string
		whole bool
	}{
		"none":        {nil, "", false},
		"one":         {[]Part{part(0, "abc")}, "abc", false},
		"both":        {[]Part{part(3, "def"), part(0, "abc")}, "abcdef", true},
		"overlapping": {[]Part{part(0, "abcd"), part(2, "cdef")}, "abcdef", true},
		"a gap":       {[]Part{part(0, "ab"), part(3, "def")}, "ab", false},
		"within":      {[]Part{part(0, "abcd"), part(1, "bc"), part(4, "ef")}, "abcdef", true},
		"of another":  {[]Part{{ID: "b", Total: 6, Text: "xyz"}, {ID: "a", Total: 5, Text: "xyz"}, part(0, "abc")}, "abc", false},
	} {
		text, whole := Join("a", 6, c.parts)
		require.Equal(t, c.text, text, name)
		require.Equal(t, c.whole, whole, name)
	}
}

func TestCut_RefusesWhatCannotArrive(t *testing.T) {
	text := strings.Repeat("x", 500)
	for _, c := range []struct {
		id          string
		from, limit int
	}{{"", 0, 500}, {"A", 0, 500}, {"a b", 0, 500}, {"../x", 0, 500}, {strings.Repeat("a", 41), 0, 500}, {"a", -1, 500}, {"a", 500, 500}, {"a", 0, 20}} {
		_, err := Cut(c.id, text, c.from, c.limit)
		require.Error(t, err, c)
	}
	for _, message := range []string{
		"", "Completed", "b1 a 5 0", "b2 a 5 0 x", "b1 A 5 0 x", "b1 a -5 0 x", "b1 a 5 6 x", "b1 a 5 5 x", "b1 a x 0 x", "b1 a 99999999 0 x", "b1 a 5 -1 x",
		"b1 a 5 9223372036854775807 x",
	} {
		_, err := ParsePart(message)
		require.ErrorIs(t, err, ErrMalformed, message)
	}
}

func TestDelivery_IsCutForLinuxAndBounded(t *testing.T) {
	noise := func(size int) string {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte('!' + rand.IntN(90))
		}
		return string(b)
	}
	d := Delivery{
		Responses: []jobcontainer.Response{{ID: "a", Containers: []jobcontainer.Granted{{Name: "job-1-0", Config: jobcontainer.ImageConfig{Env: []string{noise(200 << 10)}}}}}},
		Failures:  []Failure{{Container: "job-1-0", Text: "no", Final: true}},
	}
	arguments, err := d.Arguments()
	require.NoError(t, err)
	require.Greater(t, len(arguments), 1)
	for _, a := range arguments {
		require.Less(t, len(a), 128<<10, "Linux passes no longer argument")
	}
	got, err := ParseDelivery(arguments)
	require.NoError(t, err)
	require.Equal(t, d, got)

	d.Responses[0].Refusal = noise(400 << 10)
	_, err = d.Arguments()
	tooLarge := (*TooLargeError)(nil)
	require.True(t, errors.As(err, &tooLarge))
	require.Greater(t, tooLarge.Size, MaxDelivery)
	// An image of many empty texts compresses to nearly nothing. What is sent must be read.
	d.Responses[0].Refusal, d.Responses[0].Containers[0].Config = "", jobcontainer.ImageConfig{Cmd: make([]string, maxDeliveryJSON/3)}
	_, err = d.Arguments()
	require.True(t, errors.As(err, &tooLarge), err)
	require.Equal(t, maxDeliveryJSON, tooLarge.Most)
	d.Responses[0].Containers[0].Config.Cmd = make([]string, maxDeliveryJSON/3-100)
	arguments, err = d.Arguments()
	require.NoError(t, err)
	_, err = ParseDelivery(arguments)
	require.NoError(t, err)
	_, err = ParseDelivery([]string{strings.Repeat("A", MaxDelivery+1)})
	require.ErrorIs(t, err, ErrMalformed)
	_, err = ParseDelivery([]string{"%"})
	require.ErrorIs(t, err, ErrMalformed)
}

// FuzzParts: whatever a job makes of its messages, nothing but ErrMalformed and requests comes out, and what Cut made is read back.
func FuzzParts(f *testing.F) {
	mine := key(f)
	text, err := Seal(services(2, 10), mine.Public())
	require.NoError(f, err)
	for _, from := range []int{0, 50} {
		message, err := Cut("r-1", text, from, 200)
		require.NoError(f, err)
		f.Add(message, 300)
	}
	f.Add("b1 a 5 0 x", 0)
	f.Fuzz(func(t *testing.T, message string, limit int) {
		part, err := ParsePart(message)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		joined, whole := Join(part.ID, part.Total, []Part{part})
		require.LessOrEqual(t, len(joined), part.Total)
		if whole {
			if _, err := mine.Open(joined); err != nil {
				require.True(t, errors.Is(err, ErrMalformed) || errors.Is(err, ErrOtherKey), err)
			}
		}
		if again, err := Cut(part.ID, part.Text+"x", 0, limit); err == nil {
			require.LessOrEqual(t, len(again), max(limit, 0)+leastPart+64)
			read, err := ParsePart(again)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(part.Text+"x", read.Text))
		}
	})
}

// FuzzDelivery reads whatever stands in the arguments of a container.
func FuzzDelivery(f *testing.F) {
	arguments, err := Delivery{Closed: "no"}.Arguments()
	require.NoError(f, err)
	f.Add(arguments[0])
	f.Fuzz(func(t *testing.T, argument string) {
		d, err := ParseDelivery([]string{argument})
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		_, _ = d.Arguments()
	})
}
