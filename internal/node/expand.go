package node

import "strings"

// expand replaces references $(NAME) in s by what lookup knows; what it does not know stays as it is. $$ stands for one dollar
// sign, so that $$(NAME) is not a reference. These are the rules of Kubernetes for command, args and env.
func expand(s string, lookup func(name string) (string, bool)) string {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		s = s[i:]
		name, rest, isRef := reference(s)
		switch {
		case strings.HasPrefix(s, "$$"):
			out.WriteByte('$')
			s = s[2:]
		case isRef:
			if value, known := lookup(name); known {
				out.WriteString(value)
			} else {
				out.WriteString(s[:len(s)-len(rest)])
			}
			s = rest
		default:
			out.WriteByte('$')
			s = s[1:]
		}
	}
}

// reference splits "$(NAME)rest".
func reference(s string) (name, rest string, ok bool) {
	body, found := strings.CutPrefix(s, "$(")
	if !found {
		return "", "", false
	}
	return strings.Cut(body, ")")
}
