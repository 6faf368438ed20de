package process

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimes_FindWhatWasWrittenFromThenOn(t *testing.T) {
	dir := t.TempDir()
	log, index := filepath.Join(dir, "log"), filepath.Join(dir, "times")
	require.NoError(t, os.WriteFile(log, make([]byte, 100), 0o600))
	file, err := os.Create(index)
	require.NoError(t, err)
	w := &timesWriter{file: file}
	begin := time.Unix(1000, 0)
	for _, e := range []struct {
		second int
		size   int64
	}{{1, 10}, {2, 10}, {3, 30}, {2, 40}, {9, 200}} { // nothing new; a clock put back; a log cut short
		require.NoError(t, w.note(begin.Add(time.Duration(e.second)*time.Second), e.size))
	}
	_, err = file.Write([]byte("torn"))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.NoError(t, os.Chtimes(log, begin, begin.Add(20*time.Second)))

	l := openLog(log, index)
	defer func() { require.NoError(t, l.Close()) }()
	for _, year := range []int{1, 1000, 1600, 1969} { // most of which are no number of nanoseconds since 1970
		offset, err := l.OffsetAt(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		require.NoError(t, err)
		require.Zero(t, offset, "year %d", year)
	}
	last := int64(0)
	for second, want := range []int64{0: 0, 1: 0, 2: 10, 3: 10, 4: 40, 9: 40, 10: 100, 20: 100, 21: 100} {
		if want == 0 && second > 1 {
			want = last // between the seconds that are named nothing changes
		}
		offset, err := l.OffsetAt(begin.Add(time.Duration(second) * time.Second))
		require.NoError(t, err)
		require.Equal(t, want, offset, "second %d", second)
		last = want
	}
}

func TestTimes_WithoutAnIndexOrALog(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	l := openLog(log, filepath.Join(dir, "times"))
	size, err := l.Size()
	require.NoError(t, err)
	require.Zero(t, size)
	_, err = l.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, io.EOF)

	require.NoError(t, os.WriteFile(log, []byte("abc"), 0o600))
	require.NoError(t, os.Chtimes(log, time.Unix(5, 0), time.Unix(5, 0)))
	defer func() { require.NoError(t, l.Close()) }()
	for at, want := range map[int64]int64{4: 0, 5: 0, 6: 3} {
		offset, err := l.OffsetAt(time.Unix(at, 0))
		require.NoError(t, err)
		require.Equal(t, want, offset)
	}
}
