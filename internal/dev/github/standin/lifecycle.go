package standin

import (
	"time"
)

// What may happen to a job, in the order of its life. Every function is called with the lock held.

// admitLocked makes the job visible: queued (and matched), or waiting for approval.
func (s *Server) admitLocked(j *job) {
	now := s.now()
	j.createdAt = now
	if j.run.held {
		j.state = jobWaiting
		s.jobEventLocked(j, "waiting")
		return
	}
	s.queueLocked(j)
}

func (s *Server) queueLocked(j *job) {
	now := s.now()
	j.state, j.queuedAt = jobQueued, now
	if f, ok := s.faults.take(FaultQueueTimeout, jobSubject(j)); ok {
		j.queueLimit = time.Duration(f.Delay)
	}
	s.jobSeq++
	j.seq = s.jobSeq
	s.enqueueLocked(j)
	s.jobEventLocked(j, "queued")
	s.watchQueuedLocked(j)
	s.matchJobLocked(j)
}

// watchQueuedLocked cancels a job that no runner took for a day.
func (s *Server) watchQueuedLocked(j *job) {
	limit := s.opts.QueueLimit
	if j.queueLimit > 0 {
		limit = j.queueLimit
	}
	s.deadlineLocked(j.queuedAt.Add(limit), func() {
		if j.state == jobQueued || j.state == jobAssigned {
			s.withdrawLocked(j)
			s.concludeLocked(j, concludedCancelled, "the job was queued longer than GitHub allows")
		}
	})
}

// assignLocked binds a queued job to an idle runner. The runner learns it from its poll.
func (s *Server) assignLocked(j *job, rn *runner) {
	now := s.now()
	s.dequeueLocked(j)
	s.messageSeq++
	j.state, j.runner, j.assignedAt = jobAssigned, rn, now
	j.requestID, j.messageID, j.acknowledged = s.guid(), s.messageSeq, false
	j.assignments++
	s.requests[j.requestID] = j
	rn.job, rn.cancelMessage, rn.cancelDelivered = j, 0, false
	if minted, ok := s.intentions[j.id]; ok && minted != rn.id {
		s.faults.take(FaultAssignDifferent, jobSubject(j)) // it has struck now
	}
	j.given = append(j.given, Given{RunnerID: rn.id, Runner: rn.name, AssignedAt: now.UTC()})
	rn.given = append(rn.given, j.id)
	if f, ok := s.faults.take(FaultBusyHidden, runnerSubjectLocked(rn)); ok {
		rn.busyHiddenUntil = now.Add(f.delayOr(time.Minute))
	}
	s.settleRunnerLocked(rn)
	s.watchAssignedLocked(j)
	rn.signal()
	s.changedLocked()
}

// watchAssignedLocked queues a job again that its runner does not acquire in time.
func (s *Server) watchAssignedLocked(j *job) {
	request := j.requestID
	s.deadlineLocked(j.assignedAt.Add(s.opts.AcquireWithin), func() {
		if j.state != jobAssigned || j.requestID != request {
			return
		}
		rn := j.runner
		if rn.polls == 0 { // it did not come for its job: it is offline until it polls again
			rn.lastContact = time.Time{}
		}
		s.unassignLocked(j, endNotAcquired)
		s.requeueLocked(j)
		s.matchRunnerLocked(rn) // the job may have gone to another, and others may have waited for this one
	})
}

// unassignLocked takes an assignment back that was never acquired, and says why.
func (s *Server) unassignLocked(j *job, why string) {
	rn := j.runner
	j.endGiven(why, s.now())
	delete(s.requests, j.requestID)
	j.runner, j.requestID = nil, ""
	if rn == nil || rn.job != j {
		return
	}
	rn.job = nil
	s.settleRunnerLocked(rn)
}

// requeueLocked puts an unassigned job back where it was. GitHub sends no webhook for it.
func (s *Server) requeueLocked(j *job) {
	j.state = jobQueued
	s.requeued++
	j.requeues++
	s.enqueueLocked(j)
	s.matchJobLocked(j)
	s.changedLocked()
}

// startLocked marks the job as acquired by its runner.
func (s *Server) startLocked(j *job) {
	now := s.now()
	rn := j.runner
	j.state, j.startedAt, j.renewedAt, j.acknowledged = jobInProgress, now, now, true
	j.runnerID, j.runnerName, j.groupID, j.groupName = rn.id, rn.name, rn.groupID, rn.scope.groupName(rn.groupID)
	j.acquisitions++
	j.acquirers = append(j.acquirers, rn.name)
	if n := len(j.given); n > 0 {
		j.given[n-1].AcquiredAt = moment(now)
	}
	rn.ran = append(rn.ran, j.id)
	if f, ok := s.faults.take(FaultJobCancel, runnerSubjectLocked(rn)); ok {
		j.cancelAt = now.Add(time.Duration(f.Delay))
	}
	j.token = s.newRunnerTokenLocked(rn, j)
	if j.run.startedAt.IsZero() {
		j.run.startedAt = now
	}
	s.jobEventLocked(j, "in_progress")
	s.watchRenewalLocked(j)
	s.watchTimeoutLocked(j)
	s.watchCancelLocked(j)
}

// watchCancelLocked cancels a running job when a fault says so.
func (s *Server) watchCancelLocked(j *job) {
	if j.cancelAt.IsZero() {
		return
	}
	s.deadlineLocked(j.cancelAt, func() {
		if j.state == jobInProgress && !j.cancelling {
			j.reason = "the job was cancelled on GitHub"
			s.cancelJobLocked(j)
		}
	})
}

// watchTimeoutLocked cancels a job that runs longer than its timeout-minutes, should its runner not have done so.
func (s *Server) watchTimeoutLocked(j *job) {
	if j.timeout <= 0 {
		return
	}
	s.deadlineLocked(j.startedAt.Add(j.timeout), func() {
		if j.state == jobInProgress && !j.cancelling {
			j.reason = "the job ran longer than its timeout-minutes"
			s.cancelJobLocked(j)
		}
	})
}

// watchRenewalLocked fails the job when its runner has been silent for too long.
func (s *Server) watchRenewalLocked(j *job) {
	s.deadlineLocked(j.renewedAt.Add(s.opts.LostAfter), func() {
		if j.state != jobInProgress {
			return
		}
		if s.now().Sub(j.renewedAt) < s.opts.LostAfter {
			s.watchRenewalLocked(j)
			return
		}
		s.loseLocked(j, "the runner lost communication with the server")
	})
}

func (s *Server) loseLocked(j *job, reason string) {
	j.lost = true
	s.lost++
	s.log.Warn("runner lost while it ran a job", "job", j.id, "name", j.name, "runner", j.runnerName)
	s.concludeLocked(j, concludedFailure, reason)
}

// withdrawLocked takes a job out of the queue or back from a runner that has not acquired it.
func (s *Server) withdrawLocked(j *job) {
	switch j.state {
	case jobQueued:
		s.dequeueLocked(j)
	case jobAssigned:
		rn := j.runner
		s.unassignLocked(j, endWithdrawn)
		if rn != nil {
			rn.signal()
			s.matchRunnerLocked(rn)
		}
	}
}

// cancelJobLocked cancels one job: at once if no runner has it, otherwise by a message to its runner.
func (s *Server) cancelJobLocked(j *job) {
	switch j.state {
	case jobWaiting, jobQueued, jobAssigned:
		s.withdrawLocked(j)
		s.concludeLocked(j, concludedCancelled, j.reason)
	case jobInProgress:
		if j.cancelling {
			return
		}
		j.cancelling = true
		if rn := j.runner; rn != nil {
			s.messageSeq++
			rn.cancelMessage, rn.cancelDelivered = s.messageSeq, false
			rn.signal()
		}
		s.watchCancelledLocked(j)
	}
}

// watchCancelledLocked ends a cancelled job whose runner does not.
func (s *Server) watchCancelledLocked(j *job) {
	s.deadlineLocked(s.now().Add(s.opts.CancelGrace), func() {
		if j.state == jobInProgress {
			s.concludeLocked(j, concludedCancelled, "the runner did not end the cancelled job in time")
		}
	})
}

// concludeLocked ends a job, frees or removes its runner, and continues the workflow.
func (s *Server) concludeLocked(j *job, conclusion, reason string) {
	s.finishLocked(j, conclusion, reason, nil)
}

func (s *Server) finishLocked(j *job, conclusion, reason string, outputs map[string]string) {
	if j.state == jobCompleted {
		return
	}
	j.state, j.conclusion, j.completedAt = jobCompleted, conclusion, s.now()
	if reason != "" {
		j.reason = reason
	}
	delete(s.requests, j.requestID)
	delete(s.intentions, j.id)
	rn := j.runner
	j.runner = nil
	end := conclusion
	if j.lost {
		end = endLost
	}
	j.endGiven(end, j.completedAt)
	s.jobEventLocked(j, "completed")
	if rn != nil && rn.job == j {
		rn.job = nil
		if rn.static {
			rn.cancelMessage, rn.cancelDelivered = 0, false
			s.settleRunnerLocked(rn) // it is idle, and gets its next job when it asks for one
		} else {
			s.removeRunnerLocked(rn, removedAfterJob) // its one job is over
		}
	}
	if _, uploaded := s.blobs.text(blobID(j.id, "job", "")); uploaded {
		s.live.drop(j.id)
	}
	s.jobEndedLocked(j, outputs)
	s.changedLocked()
}

// removeRunnerLocked takes a registration away, and remembers who did. Held polls are woken and refused.
func (s *Server) removeRunnerLocked(rn *runner, by string) {
	if rn.removed {
		return
	}
	rn.removed = true
	s.gone = append(s.gone, s.runnerRecordLocked(rn, by))
	rn.session = nil // without a session it is offline: no job is given to it
	rn.scope.remove(rn)
	delete(s.runners, rn.id)
	delete(s.clients, rn.clientID)
	if rn.intended != nil {
		delete(s.intentions, rn.intended.id)
	}
	s.settleRunnerLocked(rn)
	rn.signal()
	s.changedLocked()
}

// watchOfflineLocked looks again at a runner whose poll ended, so that it leaves the idle index in time.
func (s *Server) watchOfflineLocked(rn *runner) {
	if rn.offlineCheck || rn.removed {
		return
	}
	rn.offlineCheck = true
	s.deadlineLocked(s.now().Add(s.opts.OfflineAfter), func() {
		rn.offlineCheck = false
		if rn.removed || rn.session == nil || rn.polls > 0 {
			return
		}
		if rn.online(s.now(), s.opts.OfflineAfter) {
			s.watchOfflineLocked(rn)
			return
		}
		s.settleRunnerLocked(rn)
	})
}

// watchCleanupLocked removes a registration a day after it disconnected, or if it never connected.
func (s *Server) watchCleanupLocked(rn *runner) {
	since := rn.createdAt
	if rn.lastContact.After(since) {
		since = rn.lastContact
	}
	after := s.opts.EphemeralCleanup
	if rn.static {
		after = s.opts.StaticCleanup
	}
	if rn.cleanupAfter > 0 {
		after = rn.cleanupAfter
	}
	s.deadlineLocked(since.Add(after), func() {
		switch {
		case rn.removed:
		case rn.job != nil || rn.online(s.now(), s.opts.OfflineAfter):
			rn.lastContact = s.now()
			s.watchCleanupLocked(rn)
		case rn.lastContact.After(since):
			s.watchCleanupLocked(rn)
		default:
			s.removeRunnerLocked(rn, removedOffline)
		}
	})
}
