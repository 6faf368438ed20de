package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// column is what a statement of an older server has to do with.
type column struct {
	Type     string
	Nullable bool
	// Filled indicates that an INSERT which does not name it has a value nevertheless.
	Filled bool
}

// rule is a constraint, a unique index or a trigger.
type rule struct {
	Table string
	// Columns that it is about; none for a trigger.
	Columns []string
	Unique  bool
	Demands string
}

// catalog is what of a schema statements can run into, by name.
type catalog struct {
	// Tables → columns.
	Tables map[string]map[string]column
	Rules  map[string]rule
	// Functions by name and argument types, with what each returns.
	Functions map[string]string
}

// reads is a connection or a transaction.
type reads interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func readCatalog(t *testing.T, conn reads) catalog {
	t.Helper()
	c := catalog{Tables: map[string]map[string]column{}, Rules: map[string]rule{}, Functions: map[string]string{}}
	each := func(sql string, into []any, take func()) {
		t.Helper()
		rows, err := conn.Query(t.Context(), sql)
		require.NoError(t, err)
		_, err = pgx.ForEachRow(rows, into, func() error { take(); return nil })
		require.NoError(t, err)
	}
	var table, name, text string
	var col column
	var r rule
	each(`SELECT r.relname, a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
			a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> ''
		FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid
		WHERE r.relnamespace = 'public'::regnamespace AND r.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped`,
		[]any{&table, &name, &col.Type, &col.Nullable, &col.Filled}, func() {
			if c.Tables[table] == nil {
				c.Tables[table] = map[string]column{}
			}
			c.Tables[table][name] = col
		})
	// A primary key and a UNIQUE constraint are unique indexes, too.
	each(`SELECT conrelid::regclass::text, conname, pg_get_constraintdef(c.oid), false,
			(SELECT array_agg(attname::text) FROM pg_attribute WHERE attrelid = conrelid AND attnum = ANY(conkey))
		FROM pg_constraint c WHERE connamespace = 'public'::regnamespace AND conrelid <> 0 AND contype IN ('c', 'f', 'x')
		UNION ALL SELECT indrelid::regclass::text, relname, pg_get_indexdef(indexrelid), true,
			(SELECT coalesce(array_agg(attname::text), '{}') FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY(indkey))
		FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indisunique AND relnamespace = 'public'::regnamespace
		UNION ALL SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(t.oid), false, '{}'
		FROM pg_trigger t JOIN pg_class ON pg_class.oid = tgrelid WHERE NOT tgisinternal AND relnamespace = 'public'::regnamespace`,
		[]any{&r.Table, &name, &r.Demands, &r.Unique, &r.Columns}, func() { c.Rules[r.Table+"."+name] = r })
	each(`SELECT oid::regprocedure::text, pg_get_function_result(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace`,
		[]any{&name, &text}, func() { c.Functions[name] = text })
	return c
}

// breaks says what of a newer schema an older server's statements may run into: what they read is gone or of another type, or what
// they write is refused. It is pure, and its order is that of names.
func breaks(before, after catalog) []string {
	var found []string
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, table := range slices.Sorted(maps.Keys(before.Tables)) {
		now, there := after.Tables[table]
		if !there {
			say("table %s is gone", table)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(before.Tables[table])) {
			was := before.Tables[table][name]
			is, there := now[name]
			switch {
			case !there:
				say("column %s.%s is gone", table, name)
			case is.Type != was.Type:
				say("column %s.%s has become %s", table, name, is.Type)
			case was.Nullable && !is.Nullable:
				say("column %s.%s may be null no more", table, name)
			case was.Filled && !is.Filled && !is.Nullable:
				say("column %s.%s has no default any more", table, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(now)) {
			if _, old := before.Tables[table][name]; !old && !now[name].Nullable && !now[name].Filled {
				say("column %s.%s is new, not null and without a default", table, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after.Rules)) {
		if r := after.Rules[name]; before.Rules[name].Demands != r.Demands && r.concerns(before.Tables[r.Table], after.Tables[r.Table]) {
			say("%s demands something new", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before.Functions)) {
		if after.Functions[name] != before.Functions[name] {
			say("function %s is gone, or returns something else", name)
		}
	}
	return found
}

// concerns reports whether rows of a server that knows the earlier table can break the rule. A rule on new columns alone holds for their
// defaults, or the column could not have been added; but two rows with one default are not unique.
func (r rule) concerns(was, is map[string]column) bool {
	if was == nil {
		return false // no other server writes to it
	}
	fresh := slices.DeleteFunc(slices.Clone(r.Columns), func(name string) bool { _, old := was[name]; return old })
	if r.Unique {
		return !slices.ContainsFunc(fresh, func(name string) bool { return is[name].Nullable && !is[name].Filled })
	}
	return len(fresh) == 0 || len(fresh) < len(r.Columns)
}
