package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// CLAIM-14: a batch reserves mint slots within its transaction. Whether it commits or not, each committed claim has one of
// them and every other one is given back. A repeated attempt claims no more than it has slots for.
func TestClaimBatch_CLAIM14_EverySlotIsAClaimsOrGivenBack(t *testing.T) {
	t.Parallel()
	const once, always = "nextval('attempts') = 1", "true"
	// fails has an attempt fail by a trigger on the claims: at the insertion itself, or deferred to the commit.
	fails := func(kind, when, code string) []string {
		return []string{
			`CREATE SEQUENCE attempts`,
			`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF ` + when + ` THEN RAISE EXCEPTION USING ERRCODE = '` + code + `', MESSAGE = 'by the test'; END IF; RETURN NEW; END $$`,
			`CREATE ` + kind + ` FOR EACH ROW EXECUTE FUNCTION fail()`,
		}
	}
	const (
		insertion = "TRIGGER fails BEFORE INSERT ON runner_claims"
		commit    = "CONSTRAINT TRIGGER fails AFTER INSERT ON runner_claims DEFERRABLE INITIALLY DEFERRED"
	)
	for name, tt := range map[string]struct {
		before []string
		slots  int // for four pods and three jobs
		claims int
		fails  bool
	}{
		"more slots than jobs":       {nil, 9, 3, false},
		"fewer slots than jobs":      {nil, 2, 2, false},
		"a statement collides once":  {fails(insertion, once, "40001"), 2, 2, false},
		"the commit collides once":   {fails(commit, once, "40001"), 2, 2, false},
		"a statement always fails":   {fails(insertion, always, "P0001"), 2, 0, true},
		"the commit always fails":    {fails(commit, always, "P0001"), 2, 0, true},
		"the commit always collides": {fails(commit, always, "40001"), 2, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.NewDatabase(t, Migrate)
			store, err := Open(t.Context(), url, 1)
			require.NoError(t, err)
			t.Cleanup(store.Close)
			_, batch := queueJobs(t, store, 3)
			batch.Polls = append(batch.Polls, dispatch.Poll{Namespace: "runners", PodName: "without-a-job", PodUID: "without-a-job"})
			for _, statement := range tt.before {
				ledgertest.Exec(t, url, statement)
			}
			inHand := 0
			batch.Reserve = func(_ dispatch.Account, want int) int {
				got := min(want, tt.slots-inHand)
				inHand += got
				return got
			}
			batch.Return = func(_ int64, slots int) { inHand -= slots }
			result, err := store.ClaimBatch(t.Context(), batch)
			require.Equal(t, tt.fails, err != nil, "%v", err)
			require.Len(t, result.Claims, tt.claims)
			require.Equal(t, tt.claims, inHand, "one for each claim")
		})
	}
}
