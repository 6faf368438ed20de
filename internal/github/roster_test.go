package github

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// shifting serves a list that changes between the requests for its pages.
type shifting struct {
	mu       sync.Mutex
	ids      []int
	requests int
	between  func(s *shifting) // after each request
	total    int               // said instead of the true number, when set
}

func (s *shifting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	perPage, page := atoi(r.URL.Query().Get("per_page")), max(1, atoi(r.URL.Query().Get("page")))
	from, to := min(len(s.ids), (page-1)*perPage), min(len(s.ids), page*perPage)
	var entries []string
	for _, id := range s.ids[from:to] {
		entries = append(entries, fmt.Sprintf(`{"id":%d,"name":"r%d","status":"online"}`, id, id))
	}
	if last := (len(s.ids) + perPage - 1) / perPage; page < last {
		link := func(n int, rel string) string {
			return fmt.Sprintf(`<http://%s%s?page=%d>; rel=%q`, r.Host, r.URL.Path, n, rel)
		}
		w.Header().Set("Link", link(page+1, "next")+", "+link(last, "last"))
	}
	total := len(s.ids)
	if s.total != 0 {
		total = s.total
	}
	_, _ = fmt.Fprintf(w, `{"total_count":%s,"runners":[%s]}`, strconv.Itoa(total), strings.Join(entries, ","))
	s.requests++
	if s.between != nil {
		s.between(s)
	}
}

func upTo(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = i + 1
	}
	return ids
}

func readRoster(t *testing.T, s *shifting) (fleet.Roster, []int64) {
	t.Helper()
	client := newTestClient(t, newForge(t, s.ServeHTTP), nil)
	list, err := client.Roster(t.Context(), 42, org)
	require.NoError(t, err)
	var ids []int64
	for _, one := range list.Runners {
		ids = append(ids, one.ID)
	}
	return list, ids
}

func TestRoster_OnePageIsWhole(t *testing.T) {
	for _, n := range []int{0, 1, 100} {
		s := &shifting{ids: upTo(n)}
		list, ids := readRoster(t, s)
		require.True(t, list.Complete)
		require.Len(t, ids, n)
		require.Equal(t, 1, s.requests)
	}
	cut := &shifting{ids: upTo(3), total: 4}
	list, _ := readRoster(t, cut)
	require.False(t, list.Complete, "an answer that says that there are more is not the whole list")
	require.NotEmpty(t, list.Doubt)
}

// EXCL-6: runners that are removed between two pages move those behind them forward. A runner that stays is not missed.
func TestRoster_EXCL6_PagesThatShiftHideNoRunner(t *testing.T) {
	s := &shifting{ids: upTo(450)}
	s.between = func(s *shifting) {
		s.ids = append(s.ids[7:], 10_000+s.requests) // some of the first go, one comes
	}
	list, ids := readRoster(t, s)
	require.True(t, list.Complete, list.Doubt)
	for id := int64(100); id <= 450; id++ {
		require.Contains(t, ids, id)
	}
	require.Equal(t, 6, s.requests, "a request a page, and the first twice")
}

// EXCL-6: in an order that is not that of the ids nothing can be said about what moves where: only a list that stands still
// proves something.
func TestRoster_EXCL6_AnotherOrderHasToStandStill(t *testing.T) {
	newestFirst := upTo(250)
	slices.Reverse(newestFirst)
	still := &shifting{ids: newestFirst}
	list, ids := readRoster(t, still)
	require.True(t, list.Complete)
	require.Len(t, ids, 250)

	moving := &shifting{ids: slices.Clone(newestFirst)}
	moving.between = func(s *shifting) { s.ids = append([]int{1000 + s.requests}, s.ids...) }
	list, _ = readRoster(t, moving)
	require.False(t, list.Complete)
	require.Contains(t, list.Doubt, "changed while it was read")
}

// EXCL-6: pages in the order of ids that hold fewer than GitHub's count hide a runner: absence is not concluded.
func TestRoster_EXCL6_FewerThanItsCountIsNotWhole(t *testing.T) {
	cut := &shifting{ids: slices.Delete(upTo(250), 120, 121), total: 250} // a server that lags behind its own count
	list, ids := readRoster(t, cut)
	require.Len(t, ids, 249)
	require.False(t, list.Complete)
	require.NotEmpty(t, list.Doubt)

	grows := &shifting{ids: upTo(250)} // one comes while it is read, behind what was read: the second time it stands still
	grows.between = func(s *shifting) {
		if s.requests == 2 {
			s.ids = append(s.ids, 1000)
		}
	}
	list, ids = readRoster(t, grows)
	require.True(t, list.Complete, list.Doubt)
	require.Len(t, ids, 251)
}

func TestRoster_ErrorsAreNoLists(t *testing.T) {
	for _, code := range []int{403, 404, 500} {
		client := newTestClient(t, newForge(t, status(code, `{}`)), nil)
		list, err := client.Roster(t.Context(), 42, org)
		require.Error(t, err)
		require.False(t, list.Complete)
	}
}
