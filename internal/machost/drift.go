package machost

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
)

// DriftHash names the desired state of a host of the fleet: the configuration's fleet-wide fields, with their defaults, and the SHA-256 of
// the binary that applies it, because that renders every file. Fields of one host are not in it, and no secret is: a changed password or
// token makes no host differ.
func (c Config) DriftHash(binarySHA256 string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "binary %q\n", binarySHA256)
	hashFields(sum, reflect.ValueOf(c.Default()), "")
	return hex.EncodeToString(sum.Sum(nil))
}

func hashFields(w io.Writer, of reflect.Value, prefix string) {
	for i := range of.NumField() {
		field := of.Type().Field(i)
		name := prefix + jsonName(field)
		switch {
		case field.Type.Kind() == reflect.Struct:
			hashFields(w, of.Field(i), name+".")
		case field.Tag.Get("scope") == "fleet" && !isEmpty(of.Field(i)):
			value, err := json.Marshal(of.Field(i).Interface()) // sorts the keys of maps
			if err != nil {
				panic(fmt.Sprintf("field %s of a Config cannot be encoded: %v", name, err)) // none of its types can fail
			}
			fmt.Fprintf(w, "%s %s\n", name, value)
		}
	}
}

// isEmpty has a list or a map that was left out mean the same as one without items.
func isEmpty(v reflect.Value) bool {
	return v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}
