//go:build unix

package node

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The thresholds of pressure.
const (
	minMemoryFree = 100 << 20 // bytes
	minPIDsFree   = 0.05
)

// pressure says what the host is short of: one sentence each, empty when there is enough or it is unknown.
type pressure struct{ memory, disk, pids string }

// measure measures the host. short reports whether a disk was nearly full at the previous measurement.
func (a *Agent) measure(short bool) pressure {
	p := pressure{disk: a.diskShort(short)}
	if free, ok := memoryFree(); ok && free < minMemoryFree {
		p.memory = fmt.Sprintf("%d MiB of memory are available", free>>20)
	}
	if used, limit, ok := pidsUsed(); ok && float64(limit-used) < minPIDsFree*float64(limit) {
		p.pids = fmt.Sprintf("%d of %d processes run", used, limit)
	}
	return p
}

func diskSpace(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	size := uint64(st.Bsize)
	return st.Bavail * size, st.Blocks * size, nil
}

// HostCapacity is what this machine has. pods is for the caller to choose.
func HostCapacity(stateDir string, pods int64) (corev1.ResourceList, error) {
	memory, err := memoryTotal()
	if err != nil {
		return nil, fmt.Errorf("measuring this machine's memory: %w", err)
	}
	_, disk, err := diskSpace(stateDir)
	if err != nil {
		return nil, fmt.Errorf("measuring the disk of %s: %w", stateDir, err)
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(memory), resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(int64(disk), resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(pods, resource.DecimalSI),
	}, nil
}

// hostInfo describes the machine. kubectl shows the kubelet's version.
func hostInfo(version, sandboxName string) corev1.NodeSystemInfo {
	info := corev1.NodeSystemInfo{
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		KubeletVersion: version, ContainerRuntimeVersion: sandboxName + "://" + version,
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		info.KernelVersion = unix.ByteSliceToString(u.Release[:])
		info.OSImage = unix.ByteSliceToString(u.Sysname[:])
	}
	fillHostIDs(&info)
	return info
}
