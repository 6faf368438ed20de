package arcmigration

// Overlooked are the paths of an object that was converted, of which it is not known what became.
func Overlooked(result *Result, of Object) []string {
	var found []string
	for _, c := range result.made {
		if c.object.File == of.File && c.object.Document == of.Document && c.object.Item == of.Item {
			for _, left := range c.scope().leftovers() {
				found = append(found, left.path)
			}
		}
	}
	return found
}
