package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/periodic/retention"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/poolertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// Every method of the store has the same effect through a transaction pooler as without one. Both have a ledger of the same contents, the
// same calls in the same order, and the pooler a few server connections, which it takes in turn while others use them, too.
func TestStore_NET9_EveryMethodWorksThroughAPooler(t *testing.T) {
	now, url := time.Now(), ledgerForMethods(t)
	directly := callAll(t, url, url, nil, now)
	for name, o := range poolertest.Kinds(t) {
		t.Run(name, func(t *testing.T) {
			url := ledgerForMethods(t)
			pooler := poolertest.Start(t, url, o)
			pooler.Settle(t, url, 3)
			through := callAll(t, pooler.URL(t, url), url, otherClients, now)
			for i, want := range directly {
				require.Equal(t, want, through[i])
			}
		})
	}
}

func ledgerForMethods(t *testing.T) string {
	t.Helper()
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	ledgertest.Fill(t, url, sizeForMethods)
	for _, sql := range seldom {
		ledgertest.Exec(t, url, sql)
	}
	return url
}

var sizeForMethods = ledgertest.Size{Queued: 100, Accounts: 2, Free: 1}

// otherClients are clients of the pooler beside the store, until the returned function has waited for them.
func otherClients(t *testing.T, url string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var others errgroup.Group
	for range 2 {
		store, err := ledger.Open(ctx, url, 2)
		require.NoError(t, err)
		others.Go(func() error {
			defer store.Close()
			for ctx.Err() == nil {
				if _, err := store.Claim(ctx, "live-1"); err != nil && ctx.Err() == nil {
					return err
				}
				if _, err := store.LabelSetsFrom(ctx, "", 100); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	return func() {
		cancel()
		require.NoError(t, await.Call(t, others.Wait, "the other clients return"))
	}
}

// outcome of a call, without what differs by time.
type outcome struct{ Method, Results string }

// callAll calls each method twice: the second time statements are known. The ledger at url is read directly.
func callAll(t *testing.T, through, url string, beside func(*testing.T, string) func(), now time.Time) (all []outcome) {
	t.Helper()
	store, err := ledger.Open(t.Context(), through, 4)
	require.NoError(t, err)
	defer store.Close()
	store.UseRepositoryCaps()
	if beside != nil {
		defer beside(t, through)()
	}
	values := parameters(sizeForMethods, ledgertest.Text(t, url, "SELECT lineage FROM ledger_epoch"), now)
	names := methodParameters(t, "*.go", "Store")
	for _, method := range methodsInOrder() {
		c := methodCalls[method]
		if c.before != "" {
			ledgertest.Exec(t, url, c.before)
		}
		a := arguments{t: t, values: values, own: c.with, now: now}
		for range 2 {
			results, err := a.call(reflect.ValueOf(store).MethodByName(method), names[method])
			if err != nil && !c.refused {
				t.Errorf("%s is refused: give it other arguments, in methodCalls: %v", method, err)
			}
			all = append(all, outcome{method, results + fmt.Sprint(err)})
		}
	}
	return all
}

// methodCall is how a method is called that needs something else than most.
type methodCall struct {
	before  string         // a statement that comes first
	with    map[string]any // arguments by their names, in lower case
	refused bool           // for a reason of the ledger's, the second time at the latest
}

var methodCalls = map[string]methodCall{
	"ClaimBatch":    {with: map[string]any{"poduid": "5c0d1a52-6b1e-4f0e-9d0c-0123456789ab", "podname": "new"}},
	"ChangeLimits":  {with: map[string]any{"changes": "linux", "jobs": int64(1000), "millicpu": int64(1_000_000), "memorymb": int64(1 << 30)}},
	"Intend":        {refused: true},
	"RecordJob":     {with: map[string]any{"guid": "new", "kind": string(fleet.JobEventQueued), "jobid": newID, "accountid": int64(1)}},
	"RunnerLog":     {with: map[string]any{"pod": "tail-1"}},
	"RecordSamples": {with: map[string]any{"minutes": int64(1)}},
	"Samples":       {with: map[string]any{"name": "linux", "since": time.Time{}}},
	"StartedJobs":   {with: map[string]any{"since": time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}}, // those there are may be of two minutes
	"NoteRefusal":   {with: map[string]any{"reason": "refused"}},
	"Refuse":        {with: map[string]any{"reason": "refused"}},
	"Prune":         {with: map[string]any{"kind": string(retention.Deliveries)}},
	"BeginRebuild":  {before: "UPDATE ledger_epoch SET rebuild_turn = ''"},
	"RenewRebuild":  {before: frozenLedger},
	"Rebuild":       {before: frozenLedger},
	"RecordFound":   {before: frozenLedger, with: map[string]any{"kind": string(fleet.JobEventQueued), "jobid": newID + 1}},
	"EndRebuild":    {before: frozenLedger, refused: true},
	"DeleteAccount": {before: "UPDATE accounts SET installation_id = NULL WHERE id = 2", with: map[string]any{"account": "org-2"}, refused: true},
}

// Others would not find what these remove, and would be refused by a ledger that is frozen.
var lastMethods = []string{
	"Prune", "DeleteAccount", "ForgetDeletedAccounts", "BeginHold", "BeginRebuild", "RenewRebuild", "Rebuild", "RecordFound", "EndRebuild", "EndHold", "Guard", "Know", "Restored",
}

func methodsInOrder() []string {
	var all []string
	for method := range reflect.TypeFor[*ledger.Store]().Methods() {
		if method.Name != "Close" && method.Name != "Route" && !slices.Contains(lastMethods, method.Name) {
			all = append(all, method.Name)
		}
	}
	return append(all, lastMethods...)
}

// methodParameters are the names of parameters of the exported methods that a type has in these files.
func methodParameters(t *testing.T, glob, receiver string) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(glob)
	require.NoError(t, err)
	require.NotEmpty(t, files, glob)
	found := map[string][]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || !f.Name.IsExported() {
				continue
			}
			if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); !ok || fmt.Sprint(star.X) != receiver {
				continue
			}
			found[f.Name.Name] = nil
			for _, p := range f.Type.Params.List {
				for _, name := range p.Names {
					found[f.Name.Name] = append(found[f.Name.Name], name.Name)
				}
			}
		}
	}
	return found
}

// arguments makes values for calls, by the names and types of parameters and of fields.
type arguments struct {
	t      *testing.T
	values map[string][]any
	own    map[string]any
	now    time.Time
}

func (a arguments) call(method reflect.Value, names []string) (results string, err error) {
	var in []reflect.Value
	for i := range method.Type().NumIn() {
		in = append(in, a.value("", names[i], method.Type().In(i)))
	}
	for _, out := range method.Call(in) {
		if failed, ok := out.Interface().(error); ok {
			err = failed
			continue
		}
		written, unknown := json.Marshal(out.Interface())
		if unknown != nil { // a map by structs
			written = fmt.Appendf(nil, "%+v", out.Interface())
		}
		results += differing.ReplaceAllString(string(written), "…") + ", "
	}
	return results, err
}

// generally is what parameters of methods are, where those of statements do not fit.
var generally = map[string][]any{"account": {"org-1"}, "ref": {"org-1"}, "repository": {"org-1/app-1"}}

// differing matches times and random identifiers.
var differing = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}`)

// value for the name, or rather for the name within something.
func (a arguments) value(within, name string, typ reflect.Type) reflect.Value {
	if typ == reflect.TypeFor[context.Context]() {
		return reflect.ValueOf(a.t.Context())
	}
	name = strings.ToLower(name)
	for _, candidate := range slices.Concat([]any{a.own[name]}, a.values[within+name], a.values[name], generally[name]) {
		if value := reflect.ValueOf(candidate); value.IsValid() && value.Kind() == typ.Kind() && value.CanConvert(typ) {
			return value.Convert(typ)
		}
	}
	value := reflect.New(typ).Elem()
	switch typ.Kind() {
	case reflect.String:
		value.SetString("live-1")
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(1)
		if typ == reflect.TypeFor[time.Duration]() {
			value.SetInt(int64(time.Minute))
		}
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Slice:
		value = reflect.Append(value, a.value(within, strings.TrimSuffix(name, "s"), typ.Elem()))
	case reflect.Map:
		value = reflect.MakeMap(typ)
		value.SetMapIndex(a.value(within, name, typ.Key()), a.value(within, name, typ.Elem()))
	case reflect.Pointer:
		value = reflect.New(typ.Elem())
		value.Elem().Set(a.value(within, name, typ.Elem()))
	case reflect.Struct:
		if typ == reflect.TypeFor[time.Time]() {
			return reflect.ValueOf(a.now)
		}
		for i := range typ.NumField() {
			if typ.Field(i).IsExported() {
				value.Field(i).Set(a.value(name, typ.Field(i).Name, typ.Field(i).Type))
			}
		}
	case reflect.Func:
		value = reflect.MakeFunc(typ, func(in []reflect.Value) []reflect.Value {
			var out []reflect.Value
			for i := range typ.NumOut() {
				out = append(out, reflect.Zero(typ.Out(i)))
				if last := len(in) - 1; last >= 0 && in[last].Type() == typ.Out(i) { // as many as are asked for
					out[i] = in[last]
				}
			}
			return out
		})
	}
	return value
}
