package runnerpod

import "strings"

// OwnerLabelValue makes a label's value of an account's login. Logins are letters, digits, dashes and underscores of at
// most 39 characters, as values of labels are, but a few old ones end with a dash, which a label must not.
func OwnerLabelValue(login string) string {
	value := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		default:
			return '-'
		}
	}, login)
	if len(value) > 63 {
		value = value[:63]
	}
	if value = strings.Trim(value, "-_."); value == "" {
		return "unnamed"
	}
	return value
}
