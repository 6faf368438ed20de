package adminapi

import "time"

// UnservedJobs are queued jobs that no pool serves. It may be some seconds old.
type UnservedJobs struct {
	Jobs   int64      `json:"jobs"`             // without jobs for runners outside of pools
	More   bool       `json:"more,omitempty"`   // there are more jobs than were counted
	Oldest *time.Time `json:"oldest,omitempty"` // when the oldest was queued
	// LabelSets are what these jobs ask for, the oldest job's first. At most 20 are listed.
	LabelSets []UnservedLabels `json:"labelSets"`
	// GitHubHosted and OtherRunners are queued jobs for runners outside of pools: GitHub's own, and those of --other-runner-labels.
	GitHubHosted int64 `json:"githubHosted"`
	OtherRunners int64 `json:"otherRunners"`
}

// UnservedLabels is one set of labels that no pool serves. It names no job: to list jobs takes another right than to list pools.
type UnservedLabels struct {
	Labels   []string   `json:"labels"`
	Jobs     int64      `json:"jobs"`
	More     bool       `json:"more,omitempty"` // there are more jobs than were counted
	Oldest   time.Time  `json:"oldest"`         // when the oldest job was queued
	Nearest  []NearPool `json:"nearest"`        // up to three pools that lack the fewest of the labels
	Sentence string     `json:"sentence"`
	Remedy   string     `json:"remedy"`
}

// NearPool is a pool that has some of the labels.
type NearPool struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Labels    []string `json:"labels"`
	Missing   []string `json:"missing,omitempty"` // labels of the job that it lacks
}
