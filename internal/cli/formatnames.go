package cli

// FormatNames are the values of -o.
func FormatNames() []string {
	var names []string
	for _, format := range formats() {
		names = append(names, string(format))
	}
	return names
}
