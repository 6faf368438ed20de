package workflow

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func testScope() Scope {
	return Scope{
		Contexts: NewObject(
			"github", NewObject("ref", "refs/heads/main", "event", NewObject("commits", []any{
				NewObject("id", "a", "tags", []any{"x", "y"}), NewObject("id", "b"), "stray",
			})),
			"matrix", NewObject("os", "linux", "n", 3.0, "flag", true),
			"needs", NewObject("a", NewObject("result", "success", "outputs", NewObject("v", "1.5"))),
			"none", nil,
		),
		Success: func() bool { return true }, Failure: func() bool { return false }, Cancelled: func() bool { return false },
	}
}

func TestEval(t *testing.T) {
	for expr, want := range map[string]Value{
		"1":                                    1.0,
		"0xff":                                 255.0,
		"-2.5":                                 -2.5,
		"'it''s'":                              "it's",
		"null":                                 nil,
		"github.REF":                           "refs/heads/main",
		"github['ref']":                        "refs/heads/main",
		"github.nothing.at.all":                nil,
		"github.event.commits[1].id":           "b",
		"github.event.commits[9].id":           nil,
		"github.event.commits['0'].id":         "a",
		"join(github.event.commits.*.id)":      "a,b",
		"join(github.event.commits.*.id, '+')": "a+b",
		"github.event.commits.*.tags[1]":       []any{"y"},
		"join(needs.*.result)":                 "success",
		"toJSON(needs.a.outputs)":              "{\n  \"v\": \"1.5\"\n}",
		"toJSON('<&>')":                        `"<&>"`,
		"fromJSON('{\"b\":1,\"a\":[true,null]}').a[0]": true,
		"fromJSON('[1,2]')[1]":                         2.0,
		"contains('Hello', 'hELL')":                    true,
		"contains(fromJSON('[\"A\",2]'), 'a')":         true,
		"contains(fromJSON('[\"A\",2]'), 'b')":         false,
		"startsWith('Hello', 'he')":                    true,
		"endsWith('Hello', 'LO')":                      true,
		"format('{0} {{x}} {1}', 'a', 2)":              "a {x} 2",
		"case(false, 1, true, 2, 3)":                   2.0,
		"case(false, 1, 3)":                            3.0,
		// Comparisons: strings without case, unlike types as numbers.
		"'A' == 'a'":                    true,
		"'a' < 'B'":                     true,
		"1 == '1'":                      true,
		"'' == 0":                       true,
		"null == 0":                     true,
		"null == ''":                    true,
		"null != null":                  false,
		"true == 1":                     true,
		"'abc' == 0":                    false,
		"'abc' != 0":                    true,
		"'abc' < 1":                     false,
		"'inf' > 1":                     false,
		"'0x10' == 16":                  true,
		"github == github":              true,
		"needs.a.outputs.v >= 1.5":      true,
		"matrix.n > 2 && 'yes' || 'no'": "yes",
		"matrix.n > 9 && 'yes' || 'no'": "no",
		"!matrix.flag":                  false,
		"success() && !failure()":       true,
		"always()":                      true,
		"none.x == null":                true,
		// GitHub's odd one: an object is true, and equals no number.
		"!needs":     false,
		"needs == 1": false,
	} {
		got, err := testScope().Eval(expr)
		require.NoError(t, err, expr)
		require.Equal(t, want, got, expr)
	}
}

func TestEval_ErrorsAreClear(t *testing.T) {
	for expr, part := range map[string]string{
		"":                 "unexpected",
		"1 +":              "unexpected",
		"'open":            "unexpected",
		"1 }} 2":           "after }}",
		"steps.x":          `context "steps" is not available`,
		"nope()":           "no function nope()",
		"contains('a')":    "does not take 1 arguments",
		"format('{1}', 1)": "{1} has no argument",
		"format('}')":      "no partner",
		"format('{')":      "no partner",
		"format('{x}')":    "no argument number",
		"fromJSON('{')":    "fromJSON",
		"fromJSON('1 2')":  "text after",
		"success(1)":       "takes no arguments",
		"case(true, 1)":    "pairs",
		"toJSON(NaN)":      "toJSON",
	} {
		_, err := testScope().Eval(expr)
		require.ErrorIs(t, err, ErrExpression, expr)
		require.ErrorContains(t, err, part, expr)
	}
	_, err := Scope{}.Eval("always()")
	require.ErrorContains(t, err, "`if` only")
}

func TestCondition(t *testing.T) {
	failed := testScope()
	failed.Success, failed.Failure = func() bool { return false }, func() bool { return true }
	for _, tc := range []struct {
		cond          string
		ifGood, ifBad bool
	}{
		{"", true, false},
		{"true", true, false},
		{"${{ true }}", true, false},
		{"matrix.os == 'linux'", true, false},
		{"always()", true, true},
		{"Failure()", false, true},
		{"${{ always() && matrix.n == 3 }}", true, true},
		{"!success()", false, true},
		{"cancelled()", false, false},
		{"''", false, false},
	} {
		got, err := testScope().Condition(tc.cond)
		require.NoError(t, err, tc.cond)
		require.Equal(t, tc.ifGood, got, "%q after success", tc.cond)
		got, err = failed.Condition(tc.cond)
		require.NoError(t, err, tc.cond)
		require.Equal(t, tc.ifBad, got, "%q after failure", tc.cond)
	}
}

func TestInterpolate(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                             "plain",
		"a ${{ matrix.n }}${{ matrix.os }}": "a 3linux",
		"${{ '}}' }}!":                      "}}!",
		"é${{ matrix.n }}é":                 "é3é",
		"${{ null }}|${{ true }}|${{ needs }}|${{ 1e20 }}|${{ 0.1 }}": "|true|Object|1E+20|0.1",
		"$ {{ x }}": "$ {{ x }}",
	} {
		got, err := testScope().Interpolate(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		// What a runner gets for the same text means the same.
		token, err := TextToken(text)
		require.NoError(t, err)
		v, err := testScope().EvalToken(token)
		require.NoError(t, err)
		require.Equal(t, want, ToString(v))
	}
	_, err := testScope().Interpolate("a ${{ oops")
	require.ErrorIs(t, err, ErrExpression)
}

func TestValues(t *testing.T) {
	require.Equal(t, "NaN", ToString(math.NaN()))
	require.Equal(t, "-Infinity", ToString(math.Inf(-1)))
	require.Equal(t, "0", ToString(math.Copysign(0, -1)))
	require.False(t, Truthy(math.NaN()))
	_, err := FromJSON([]byte(strings.Repeat("[", 200) + strings.Repeat("]", 200)))
	require.ErrorIs(t, err, errTooDeep)
	_, err = FromJSON([]byte(strings.Repeat("[", 90) + strings.Repeat("]", 90)))
	require.NoError(t, err)
	o := NewObject("B", 1.0, "a", 2.0)
	o.Set("b", 3.0)
	require.Equal(t, []string{"B", "a"}, o.Keys())
	require.Equal(t, "3", o.String("b"))
	odd := []any{"a"}
	require.Panics(t, func() { NewObject(odd...) })
}
