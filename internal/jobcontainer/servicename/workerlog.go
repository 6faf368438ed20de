package servicename

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
)

// MaxLog is the most bytes of a worker's log to read: the message of the job stands at its beginning.
const MaxLog = 64 << 20

// marker precedes the message in the log. The message is indented JSON, in which secrets are masked.
var marker = []byte("Job message:")

// FromWorkerLog returns the services of the job's message in the log of the worker (_diag/Worker_<time>-utc.log), in the workflow's
// order. It returns false if the message is not there, or if the services are an expression.
func FromWorkerLog(log io.Reader) ([]Declared, bool) {
	data, err := io.ReadAll(io.LimitReader(log, MaxLog))
	if err != nil {
		return nil, false
	}
	for {
		at := bytes.Index(data, marker)
		if at < 0 {
			return nil, false
		}
		data = data[at+len(marker):]
		text := bytes.TrimLeft(data, " \r\n\t")
		if len(text) == 0 || text[0] != '{' {
			continue
		}
		var message struct {
			Services json.RawMessage `json:"jobServiceContainers"`
		}
		if json.NewDecoder(bytes.NewReader(text)).Decode(&message) != nil && json.NewDecoder(bytes.NewReader(unmasked(text))).Decode(&message) != nil {
			continue
		}
		return services(message.Services)
	}
}

// unmasked replaces words with *** outside of strings by null: a secret such as 8080 or true is masked wherever it occurs.
func unmasked(text []byte) []byte {
	var all, word []byte
	inString, escaped := false, false
	flush := func() {
		if bytes.Contains(word, []byte("***")) {
			word = []byte("null")
		}
		all = append(all, word...)
		word = nil
	}
	for _, c := range text {
		switch {
		case inString:
			all = append(all, c)
			inString = escaped || c != '"'
			escaped = !escaped && c == '\\'
		case bytes.IndexByte([]byte("{}[]:,\" \r\n\t"), c) >= 0:
			flush()
			all = append(all, c)
			inString = c == '"'
		default:
			word = append(word, c)
		}
	}
	flush()
	return all
}

// token is a template token of the message (TemplateTokenJsonConverter.cs): a bare string, or an object with a type.
type token struct {
	kind    int
	text    string
	mapping []pair
}

type pair struct {
	Key   json.RawMessage
	Value json.RawMessage
}

// Types of tokens. Others have no meaning here.
const (
	tokenString   = 0
	tokenMapping  = 2
	tokenOther    = 3
	tokenIsAbsent = 7
)

func parseToken(data json.RawMessage) (token, bool) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "null" {
		return token{kind: tokenIsAbsent}, true
	}
	var text string
	if json.Unmarshal(data, &text) == nil {
		return token{kind: tokenString, text: text}, true
	}
	if data[0] != '{' {
		return token{kind: tokenOther}, true
	}
	var object struct {
		Type *int    `json:"type"` // nil: masked
		Lit  *string `json:"lit"`
		Map  []pair  `json:"map"`
	}
	if json.Unmarshal(data, &object) != nil {
		return token{}, false
	}
	switch {
	case object.Map != nil && (object.Type == nil || *object.Type == tokenMapping):
		return token{kind: tokenMapping, mapping: object.Map}, true
	case object.Lit != nil && (object.Type == nil || *object.Type == tokenString):
		return token{kind: tokenString, text: *object.Lit}, true
	case object.Type != nil && *object.Type == tokenMapping:
		return token{kind: tokenMapping}, true
	case object.Type != nil && *object.Type == tokenIsAbsent:
		return token{kind: tokenIsAbsent}, true
	}
	return token{kind: tokenOther}, true
}

// services reads a mapping of names to images, or to mappings with an image.
func services(data json.RawMessage) ([]Declared, bool) {
	all, ok := parseToken(data)
	if !ok || all.kind != tokenMapping {
		return nil, ok && all.kind == tokenIsAbsent
	}
	var declared []Declared
	for _, entry := range all.mapping {
		name, ok := parseToken(entry.Key)
		if !ok || name.kind != tokenString {
			return nil, false
		}
		value, ok := parseToken(entry.Value)
		if !ok {
			return nil, false
		}
		image, empty := imageOf(value)
		if !empty {
			declared = append(declared, Declared{Name: name.text, Image: image})
		}
	}
	return declared, true
}

// imageOf returns the image of a service if it is written out. Without one, the runner does not start the service.
func imageOf(service token) (image string, empty bool) {
	switch service.kind {
	case tokenString:
		return service.text, strings.TrimSpace(service.text) == ""
	case tokenIsAbsent:
		return "", true
	case tokenMapping:
	default:
		return "", false
	}
	for _, field := range service.mapping {
		key, ok := parseToken(field.Key)
		if !ok || key.kind != tokenString {
			return "", false // an inserted mapping may have the image
		}
		if strings.EqualFold(key.text, "image") {
			value, ok := parseToken(field.Value)
			if !ok || value.kind == tokenMapping {
				return "", false
			}
			return imageOf(value)
		}
	}
	return "", false
}
