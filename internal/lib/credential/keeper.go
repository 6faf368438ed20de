package credential

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of Options.
const (
	DefaultEvery = 10 * time.Second
	// A kubelet takes a minute or so to bring a changed Secret to its pods, so nothing is gained by looking more often.
	retryRefused = time.Minute
)

// maxSize of a file, in bytes: a Secret holds 1 MiB at most.
const maxSize = 1 << 20

// File that a credential is made of.
type File struct {
	Path string
	// Optional: the file need not exist. Its content is nil then.
	Optional bool
}

// Source of one credential.
type Source struct {
	// Name is the metric's label, and what the log calls it: one of few.
	Name string
	// Files are read together: a state in which only some of them have been replaced is not taken for one.
	Files []File
	// Use takes the contents, one for each file, into use, or returns why it cannot, and then keeps the present ones. Its error never
	// quotes the files' contents. Refused contents are passed again a minute later, and at once when they change.
	Use func(ctx context.Context, contents [][]byte) error
}

// Options of New.
type Options struct {
	Sources []Source
	// Every is the interval at which the files are checked; DefaultEvery when zero.
	Every time.Duration
	// Log gets one line for each change; discarded when nil.
	Log *slog.Logger
	// Metrics takes bullpen_credential_refused and bullpen_credential_used_since_timestamp_seconds; nowhere when nil.
	Metrics prometheus.Registerer
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Keeper keeps credentials as their files are. It is safe for concurrent use.
type Keeper struct {
	opt     Options
	refused *prometheus.GaugeVec
	since   *prometheus.GaugeVec

	mu    sync.Mutex
	kept  []state // one for each source
	begun bool
}

type fingerprint [sha256.Size]byte

// state of one source. Fingerprints never leave this process.
type state struct {
	used    *fingerprint // what is in use; nil before the first
	refused *fingerprint // the content of the files that is not in use; nil when there is none
	unread  bool         // the files cannot be read
	again   time.Time    // when the refused content is tried again
}

// New checks the options; it reads nothing yet.
func New(opt Options) (*Keeper, error) {
	if opt.Every == 0 {
		opt.Every = DefaultEvery
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Metrics == nil {
		opt.Metrics = prometheus.NewRegistry()
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	for _, source := range opt.Sources {
		if source.Name == "" || len(source.Files) == 0 || source.Use == nil {
			return nil, errors.New("a credential source needs a name, files and a Use function")
		}
	}
	k := &Keeper{
		opt: opt, kept: make([]state, len(opt.Sources)),
		refused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bullpen_credential_refused", Help: "1 while a changed credential is rejected and the previous one is in use.",
		}, []string{"credential"}),
		since: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bullpen_credential_used_since_timestamp_seconds", Help: "Time when the credential in use was read from its files.",
		}, []string{"credential"}),
	}
	if err := errors.Join(opt.Metrics.Register(k.refused), opt.Metrics.Register(k.since)); err != nil {
		return nil, fmt.Errorf("registering the metrics of credentials: %w", err)
	}
	return k, nil
}

// Start takes every credential into use for the first time. One that cannot be used is an error: there is nothing
// to stay with.
func (k *Keeper) Start(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, source := range k.opt.Sources {
		contents, found, err := read(source.Files)
		if err == nil {
			err = source.Use(ctx, contents)
		}
		if err != nil {
			return fmt.Errorf("reading the credential %s: %w", source.Name, err)
		}
		k.accept(i, found)
	}
	k.begun = true
	return nil
}

// Run looks again and again until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(k.opt.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.Look(ctx)
		}
	}
}

// Look takes into use what has changed since the last check.
func (k *Keeper) Look(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.begun {
		return
	}
	for i := range k.opt.Sources {
		k.look(ctx, i)
	}
}

func (k *Keeper) look(ctx context.Context, i int) {
	source, kept := k.opt.Sources[i], &k.kept[i]
	contents, found, err := read(source.Files)
	switch {
	case err != nil:
		if !kept.unread {
			k.opt.Log.WarnContext(ctx, "a credential cannot be read; the one before stays in use", "credential", source.Name, "error", err)
		}
		kept.unread = true
		k.refused.WithLabelValues(source.Name).Set(1)
		return
	case *kept.used == found:
		if kept.refused != nil || kept.unread {
			k.opt.Log.InfoContext(ctx, "a credential's files hold again what is in use", "credential", source.Name)
		}
		kept.refused, kept.unread = nil, false
		k.refused.WithLabelValues(source.Name).Set(0)
		return
	}
	kept.unread = false
	seen := kept.refused != nil && *kept.refused == found
	if seen && k.opt.Now().Before(kept.again) {
		return
	}
	if err := source.Use(ctx, contents); err != nil {
		if !seen { // once for each change
			k.opt.Log.WarnContext(ctx, "a changed credential cannot be used; the one before stays in use", "credential", source.Name, "error", err)
		}
		kept.refused, kept.again = &found, k.opt.Now().Add(retryRefused)
		k.refused.WithLabelValues(source.Name).Set(1)
		return
	}
	k.accept(i, found)
	k.opt.Log.InfoContext(ctx, "took a changed credential into use", "credential", source.Name)
}

func (k *Keeper) accept(i int, found fingerprint) {
	k.kept[i] = state{used: &found}
	name := k.opt.Sources[i].Name
	k.refused.WithLabelValues(name).Set(0)
	k.since.WithLabelValues(name).Set(float64(k.opt.Now().UnixMilli()) / 1000)
}

// read returns the contents of all files at one moment. It reads until two reads in a row agree, because the files of
// one Secret are replaced together, and this may happen during the read.
func read(files []File) ([][]byte, fingerprint, error) {
	const most = 5
	before, err := readOnce(files)
	for range most {
		if err != nil {
			return nil, fingerprint{}, err
		}
		var now [][]byte
		if now, err = readOnce(files); err == nil && slices.EqualFunc(before, now, same) {
			return now, printOf(now), nil
		}
		before = now
	}
	if err == nil {
		err = errors.New("its files change all the time")
	}
	return nil, fingerprint{}, err
}

// same is bytes.Equal that tells a file that is empty from one that is not there.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && string(a) == string(b) }

func readOnce(files []File) ([][]byte, error) {
	contents := make([][]byte, len(files))
	for i, file := range files {
		content, err := os.ReadFile(file.Path)
		switch {
		case err == nil && len(content) > maxSize:
			return nil, fmt.Errorf("%s is larger than any key: %d bytes", file.Path, len(content))
		case err == nil:
			contents[i] = content
		case file.Optional && errors.Is(err, fs.ErrNotExist):
		default:
			return nil, err
		}
	}
	return contents, nil
}

// printOf is the same for the same contents; lengths keep apart what would otherwise look alike.
func printOf(contents [][]byte) fingerprint {
	sum := sha256.New()
	for _, content := range contents {
		length := int64(len(content))
		if content == nil {
			length = -1
		}
		_ = binary.Write(sum, binary.BigEndian, length) // a hash takes everything
		sum.Write(content)
	}
	return fingerprint(sum.Sum(nil))
}
