package options

import (
	"errors"
	"strings"
)

func join(problems []string) string { return strings.Join(problems, "\n") }

func parse(string, string, Pool) (Options, error) { return Options{}, errors.New("not yet") }

func split(text string) ([]string, error) { return strings.Fields(text), nil }

func splitPieces(pieces []string) ([]string, error) { return split(strings.Join(pieces, " ")) }
