package words

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Count is how many wordings a directory has.
type Count struct {
	Pronouns, Others int
}

// CountByDirectory counts findings.
func CountByDirectory(found []Finding) map[string]Count {
	counts := map[string]Count{}
	for _, f := range found {
		dir := path.Dir(f.File)
		count := counts[dir]
		if f.Pattern.Pronoun {
			count.Pronouns++
		} else {
			count.Others++
		}
		counts[dir] = count
	}
	return counts
}

// ParseCeilings reads lines of a directory, its pronouns and its other wordings.
func ParseCeilings(text string) (map[string]Count, error) {
	ceilings := map[string]Count{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var dir string
		var count Count
		if _, err := fmt.Sscan(line, &dir, &count.Pronouns, &count.Others); err != nil {
			return nil, fmt.Errorf("parsing the ceiling %q: %w", line, err)
		}
		ceilings[dir] = count
	}
	return ceilings, nil
}

const ceilingsHead = `# Directories written before the rule, and how many wordings each may still have: pronouns, others.
# A ceiling only sinks. Lower all to what there is now: go test ./test/words -args -lower
`

// FormatCeilings is the inverse of ParseCeilings.
func FormatCeilings(ceilings map[string]Count) string {
	var out strings.Builder
	out.WriteString(ceilingsHead)
	for _, dir := range slices.Sorted(maps.Keys(ceilings)) {
		fmt.Fprintf(&out, "%s %d %d\n", dir, ceilings[dir].Pronouns, ceilings[dir].Others)
	}
	return out.String()
}

// Lower brings ceilings down to the counts. It raises none, and adds none.
func Lower(ceilings, counts map[string]Count) map[string]Count {
	lowered := map[string]Count{}
	for dir, ceiling := range ceilings {
		count := counts[dir]
		ceiling.Pronouns = min(ceiling.Pronouns, count.Pronouns)
		ceiling.Others = min(ceiling.Others, count.Others)
		if ceiling != (Count{}) {
			lowered[dir] = ceiling
		}
	}
	return lowered
}

// pronounBudget is how many pronouns the directories without a ceiling may have together, by the lines of Go in the repository.
func pronounBudget(lines int) int { return lines / 10_000 }

// Check returns one line for each finding that is too many: of a directory above its ceiling all of them, because which one is new is not known.
func Check(source Source, ceilings map[string]Count) []string {
	var found []Finding
	for _, text := range source.Texts {
		found = append(found, Search(text)...)
	}
	counts := CountByDirectory(found)
	unlisted := 0
	for dir, count := range counts {
		if _, listed := ceilings[dir]; !listed {
			unlisted += count.Pronouns
		}
	}
	over := unlisted > pronounBudget(source.Lines)
	var problems []string
	for _, f := range found {
		dir := path.Dir(f.File)
		count := counts[dir]
		ceiling, listed := ceilings[dir]
		switch {
		case f.Pattern.Pronoun && !listed && over:
			problems = append(problems, fmt.Sprintf("%s:%d: %q: %s (directories without a ceiling have %d such pronouns, %d are allowed)",
				f.File, f.Line, f.Pattern.Name, f.Pattern.Instead, unlisted, pronounBudget(source.Lines)))
		case f.Pattern.Pronoun && listed && count.Pronouns > ceiling.Pronouns:
			problems = append(problems, problem(f, count.Pronouns, ceiling.Pronouns))
		case !f.Pattern.Pronoun && count.Others > ceiling.Others:
			problems = append(problems, problem(f, count.Others, ceiling.Others))
		}
	}
	return problems
}

func problem(f Finding, count, ceiling int) string {
	return fmt.Sprintf("%s:%d: %q: write %s (the directory has %d, %d allowed)", f.File, f.Line, f.Pattern.Name, f.Pattern.Instead, count, ceiling)
}
