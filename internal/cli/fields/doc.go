// Package fields reads values by the fields of their JSON: JSONPath templates, custom columns and sorting, with kubectl's syntax.
//
// Begin with path.go, one field of a value. template.go prints several, columns.go is a table of them, sort.go orders values by one.
package fields
