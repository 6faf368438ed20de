package recovery

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Why something was not done, as a label of bullpen_recovery_skipped_total.
const (
	skipUnreadable = "unreadable" // GitHub gave no answer that proves anything
	skipDisagree   = "disagree"   // the pod shows that a job may have started, and GitHub does not say so
	skipQuota      = "quota"      // enough was asked of GitHub for this pass
	skipBusy       = "busy"       // GitHub refused: its runner works
	skipOvertaken  = "overtaken"  // another actor changed it in between
	skipOff        = "off"        // its kind is switched off
	skipCap        = "cap"        // its kind did enough in this pass
	skipFailed     = "failed"     // it was tried, and failed
	skipEmptyList  = "empty_list" // no pod at all was listed: the pass was given up (RECV-4)
	skipListFailed = "list_failed"
	skipFrozen     = "frozen" // the ledger is not trusted just now: the pass, or the check of a pod, was given up (CLAIM-17)
)

// skips are all of them.
func skips() []string {
	return []string{
		skipUnreadable, skipDisagree, skipQuota, skipBusy, skipOvertaken, skipOff, skipCap, skipFailed, skipEmptyList, skipListFailed, skipFrozen,
	}
}

type metrics struct {
	recoveries *prometheus.CounterVec
	skipped    *prometheus.CounterVec
	capped     *prometheus.CounterVec
	stranded   *prometheus.HistogramVec
	doubtful   prometheus.Collector
}

func newMetrics(reg prometheus.Registerer, doubtful func() float64) (*metrics, error) {
	m := &metrics{
		recoveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_recoveries_total", Help: "Repairs by recovery, by kind. A steady rise means that events are missed.",
		}, []string{"kind"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_recovery_skipped_total", Help: "Repairs that were skipped, by reason.",
		}, []string{"reason"}),
		capped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_recovery_capped_total", Help: "Passes that reached their limit of repairs, by kind.",
		}, []string{"kind"}),
		stranded: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "bullpen_recovery_delay_seconds",
			Help:    "Time from the first sign of a problem to its repair, by kind.",
			Buckets: []float64{1, 5, 15, 60, 150, 300, 420, 600, 1200, 3600, 4 * 3600, 24 * 3600},
		}, []string{"kind"}),
		doubtful: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "bullpen_recovery_unknown",
			Help: "Pods and jobs that this replica cannot judge, because GitHub is unreachable or contradicts the pod.",
		}, doubtful),
	}
	for _, kind := range Kinds() { // so that a first one is a rise
		m.recoveries.WithLabelValues(string(kind))
		m.capped.WithLabelValues(string(kind))
		m.stranded.WithLabelValues(string(kind))
	}
	for _, reason := range skips() {
		m.skipped.WithLabelValues(reason)
	}
	for _, c := range []prometheus.Collector{m.recoveries, m.skipped, m.capped, m.stranded, m.doubtful} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering recovery's metrics: %w", err)
		}
	}
	return m, nil
}
