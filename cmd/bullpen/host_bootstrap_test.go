package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// machO is the header of a program for macOS, the only part that is read.
func machO(cpu, kind uint32) []byte {
	var header []byte
	for _, word := range []uint32{0xfeedfacf, cpu, 0, kind, 0, 0, 0, 0} {
		header = binary.LittleEndian.AppendUint32(header, word)
	}
	return header
}

func TestHostBootstrap_UploadsProgramsForMacsAlone(t *testing.T) {
	const arm64, amd64, program, library = 0x0100000c, 0x01000007, 2, 6
	own, err := os.Executable()
	require.NoError(t, err)
	linux, err := os.ReadFile(own)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		content []byte
		problem string
	}{
		"a program for Macs":     {content: machO(arm64, program)},
		"one for Intel":          {machO(amd64, program), "not a program for Apple silicon"},
		"a library":              {machO(arm64, library), "not a program for Apple silicon"},
		"this system's":          {linux[:4096], "not a macOS program"},
		"a script":               {[]byte("#!/bin/sh\n"), "not a macOS program"},
		"nothing":                {nil, "not a macOS program"},
		"a header that was torn": {machO(arm64, program)[:20], "not a macOS program"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bullpen")
			require.NoError(t, os.WriteFile(path, test.content, 0o755))
			found, err := hostBootstrapFlags{binary: path}.program()
			if test.problem == "" {
				require.NoError(t, err)
				require.Equal(t, path, found)
				return
			}
			require.ErrorContains(t, err, test.problem)
			require.ErrorContains(t, err, "GOOS=darwin", "it says how to build one")
			_, err = hostBootstrapFlags{binary: path, anyBinary: true}.program()
			require.NoError(t, err, "a model takes what it can run")
		})
	}
	_, err = hostBootstrapFlags{binary: filepath.Join(t.TempDir(), "none")}.program()
	require.ErrorContains(t, err, "GOOS=darwin")
}
