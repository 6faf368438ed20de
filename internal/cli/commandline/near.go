package commandline

import (
	"cmp"
	"slices"
	"strings"
)

// Near returns the names that a word may be a slip of, the nearest first, at most three.
func Near(word string, names []string) []string {
	type candidate struct {
		name string
		away int
	}
	word = strings.ToLower(word)
	var found []candidate
	for _, name := range names {
		away := distance(word, strings.ToLower(name))
		if len(word) >= 3 && strings.HasPrefix(strings.ToLower(name), word) {
			away = min(away, 1)
		}
		if away <= 1+len(word)/4 && away < max(len(word), 2) {
			found = append(found, candidate{name, away})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.away, b.away), strings.Compare(a.name, b.name)) })
	var near []string
	for _, c := range found[:min(3, len(found))] {
		near = append(near, c.name)
	}
	return near
}

// distance is the number of characters to insert, delete, replace or swap with the next one (optimal string alignment).
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	rows := make([][]int, len(from)+1)
	for i := range rows {
		rows[i] = make([]int, len(to)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(from); i++ {
		for j := 1; j <= len(to); j++ {
			replace := rows[i-1][j-1]
			if from[i-1] != to[j-1] {
				replace++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, replace)
			if i > 1 && j > 1 && from[i-1] == to[j-2] && from[i-2] == to[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(from)][len(to)]
}
