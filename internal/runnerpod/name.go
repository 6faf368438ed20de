package runnerpod

import (
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// namePrefix begins the name of every runner that Bullpen registers.
const namePrefix = "bp-"

// uidEncoding writes the 16 bytes of a pod's UID as 26 characters that GitHub accepts in a runner's name.
var uidEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// RunnerNamePrefix begins the name of every registration minted for the pod with that UID, so that GitHub's own
// list can be matched to pods even when our rows are lost. It fails for a UID that is not a UUID.
func RunnerNamePrefix(podUID string) (string, error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(podUID, "-", ""))
	if err != nil || len(raw) != 16 {
		return "", fmt.Errorf("pod UID %q is not a UUID", podUID)
	}
	return namePrefix + uidEncoding.EncodeToString(raw) + "-", nil
}

// RunnerName is the name of one mint: the pod's prefix, then the claim's generation, which is never the same twice
// (CLAIM-10). It is at most 64 characters: 30 for the prefix, at most 13 for the generation.
func RunnerName(podUID string, generation int64) (string, error) {
	prefix, err := RunnerNamePrefix(podUID)
	if err != nil {
		return "", err
	}
	return prefix + strconv.FormatUint(uint64(generation), 36), nil
}

// PodUID reads the UID back from the name of a runner; false when the name is not one of ours.
func PodUID(runnerName string) (string, bool) {
	rest, ok := strings.CutPrefix(runnerName, namePrefix)
	if !ok {
		return "", false
	}
	encoded, generation, ok := strings.Cut(rest, "-")
	if !ok || generation == "" {
		return "", false
	}
	raw, err := uidEncoding.DecodeString(encoded)
	if err != nil || len(raw) != 16 {
		return "", false
	}
	h := hex.EncodeToString(raw)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], true
}

// Generation reads back the generation of the claim that a runner of that name was minted under; false when the name is not
// one of ours.
func Generation(runnerName string) (int64, bool) {
	if _, ours := PodUID(runnerName); !ours {
		return 0, false
	}
	text := runnerName[strings.LastIndexByte(runnerName, '-')+1:]
	generation, err := strconv.ParseInt(text, 36, 64)
	return generation, err == nil
}
