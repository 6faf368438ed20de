package download

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const mebi = 1 << 20

func meter(terminal bool) (*Meter, *bytes.Buffer, func(time.Duration)) {
	now := time.Unix(1000, 0)
	var out bytes.Buffer
	m := &Meter{Out: &out, Terminal: terminal, Now: func() time.Time { return now }}
	m.Label("etcd:")
	return m, &out, func(d time.Duration) { now = now.Add(d) }
}

func TestMeter_PrintsALineEveryFewSecondsToALog(t *testing.T) {
	m, out, pass := meter(false)
	m.begin(0, 100*mebi)
	for i := range int64(8) {
		pass(time.Second)
		m.at((i + 1) * 10 * mebi)
	}
	m.done()
	require.Equal(t, "etcd:  50% of 100.0 MiB, 10.0 MiB/s\netcd:  80% of 100.0 MiB, 10.0 MiB/s\n", out.String())
}

func TestMeter_DrawsABarOnATerminal(t *testing.T) {
	m, out, pass := meter(true)
	m.begin(50*mebi, 100*mebi) // resumed: what was there before does not count for the rate
	pass(2 * time.Second)
	m.at(75 * mebi)
	m.at(76 * mebi)
	m.done()
	require.Equal(t, "\retcd: [###############.....]  75% of 100.0 MiB, 12.5 MiB/s\x1b[K"+
		"\retcd: [###############.....]  76% of 100.0 MiB, 13.0 MiB/s\x1b[K\n", out.String())
}

func TestMeter_KnowsNoPercentWithoutASize(t *testing.T) {
	m, out, pass := meter(true)
	m.begin(0, -1)
	pass(time.Second)
	m.at(3 * mebi)
	m.done()
	require.Contains(t, out.String(), "\retcd: 3.0 MiB, 3.0 MiB/s")
}

func TestMeter_PrintsNothingBeforeADownloadBegins(t *testing.T) {
	m, out, _ := meter(true)
	m.done()
	require.Empty(t, out.String())
}
