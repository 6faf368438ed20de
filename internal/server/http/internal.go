package http

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/lib/logtail"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// identify reads and reviews the bearer token; false when it has answered itself.
func (s *Server) identify(w http.ResponseWriter, r *http.Request, audience string) (cluster.Identity, bool) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" {
		refuse(w, http.StatusUnauthorized, "authentication required: send the token of the pod's ServiceAccount as a bearer token")
		return cluster.Identity{}, false
	}
	id, err := s.opt.Identities.Review(r.Context(), token, audience)
	switch {
	case errors.Is(err, cluster.ErrRejected):
		refuse(w, http.StatusUnauthorized, "invalid token for the audience "+audience)
		return cluster.Identity{}, false
	case err != nil:
		if r.Context().Err() == nil {
			s.flood.tell(r.Context(), slog.LevelWarn, "reviewing a token", "error", err)
		}
		retryLater(w, time.Second, "cannot review the token, retry")
		return cluster.Identity{}, false
	}
	return id, true
}

// runner identifies the pod that asks; false when it has answered itself. Nothing in the request names a pod: it is
// the one its token is bound to (NET-4).
func (s *Server) runner(w http.ResponseWriter, r *http.Request) (dispatch.Pod, bool) {
	id, ok := s.identify(w, r, runnerapi.AudienceDispatch)
	if !ok {
		return dispatch.Pod{}, false
	}
	if id.PodUID == "" {
		refuse(w, http.StatusForbidden, "the token is not bound to a pod: only runner pods may poll for work")
		return dispatch.Pod{}, false
	}
	pod, ok := s.opt.Identities.Runner(id)
	if !ok { // gone, or so new that the watch has not shown it yet
		retryLater(w, time.Second, "the pod is not a known runner of the controller, or not yet")
		return dispatch.Pod{}, false
	}
	return pod, true
}

// controller admits only the controller's principal (NET-5).
func (s *Server) controller(w http.ResponseWriter, r *http.Request) bool {
	id, ok := s.identify(w, r, runnerapi.AudienceServer)
	if !ok {
		return false
	}
	if id.Username != s.opt.ControllerPrincipal { // NET-5
		refuse(w, http.StatusForbidden, "this path is for the controller only, and you are "+id.Username)
		return false
	}
	return true
}

func retryLater(w http.ResponseWriter, after time.Duration, sentence string) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
	refuse(w, http.StatusServiceUnavailable, sentence)
}

func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.runner(w, r)
	if !ok {
		return
	}
	var body runnerapi.Poll
	if r.ContentLength != 0 && !decode(w, r, &body) {
		return
	}
	result, err := s.opt.Dispatcher.Poll(r.Context(), pod, max(0, body.Sequence))
	if err != nil {
		if r.Context().Err() == nil {
			s.flood.tell(r.Context(), slog.LevelError, "dispatching", "pod", pod.Name, "error", err)
		}
		retryLater(w, time.Second, "the request failed, retry")
		return
	}
	switch result.Reply {
	case dispatch.ReplyServe:
		w.Header().Set("Cache-Control", "no-store")
		answer(w, http.StatusOK, runnerapi.Dispatch{
			JITConfig: result.JIT.Encoded.Reveal(), RunnerName: result.JIT.Name, Generation: result.Generation,
		})
		if faultpoint.Enabled {
			_ = http.NewResponseController(w).Flush() // or it would not have left yet
			faultpoint.Reached(faultpoint.AnswerWritten)
		}
	case dispatch.ReplyGone:
		refuse(w, http.StatusGone, "this runner has completed its job, or is being removed")
	case dispatch.ReplyRetry:
		retryLater(w, result.RetryAfter, "the registration at GitHub failed, retry")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// acknowledge answers in two parts: the status when the acknowledgement is recorded, and the end of the body when the runner may start. A network
// layer that cuts the pod off at its label cuts the second part only, and the pod needs to retry nothing (TEN-8).
func (s *Server) acknowledge(w http.ResponseWriter, r *http.Request) {
	pod, ok := s.runner(w, r)
	if !ok {
		return
	}
	var body runnerapi.Acknowledge
	if !decode(w, r, &body) {
		return
	}
	won, err := s.opt.Dispatcher.Acknowledge(r.Context(), pod, body.Generation)
	switch {
	case err != nil:
		if r.Context().Err() == nil {
			s.flood.tell(r.Context(), slog.LevelError, "acknowledging", "pod", pod.Name, "error", err)
		}
		retryLater(w, time.Second, "the acknowledgement could not be stored, retry")
	case !won:
		refuse(w, http.StatusConflict, "a later response has replaced this one")
	default:
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // it is recorded, whatever becomes of the rest
		s.opt.Dispatcher.Label(r.Context(), pod)
	}
}

// signalsTimeout is less than the controller waits for an answer.
const signalsTimeout = 9 * time.Second

// maxRetire bounds one batch of the controller.
const maxRetire = 1000

func (s *Server) retire(w http.ResponseWriter, r *http.Request) {
	if !s.controller(w, r) {
		return
	}
	var body runnerapi.RetireRequest
	if !decode(w, r, &body) {
		return
	}
	if len(body.Pods) > maxRetire {
		refuse(w, http.StatusRequestEntityTooLarge, "at most 1000 pods per request")
		return
	}
	for _, ref := range body.Pods {
		if ref.UID == "" || ref.Name == "" || ref.Namespace == "" {
			refuse(w, http.StatusBadRequest, "every pod needs a namespace, a name and a uid")
			return
		}
	}
	answers := make([]runnerapi.RetireAnswer, len(body.Pods))
	err := retireSome(r.Context(), body.Pods, false, s.opt.Dispatcher.Retire, answers)
	if err == nil {
		err = retireSome(r.Context(), body.Pods, true, s.opt.Dispatcher.RetireLost, answers)
	}
	if err != nil {
		s.opt.Log.ErrorContext(r.Context(), "retiring", "error", err)
		retryLater(w, time.Second, "the database does not respond: nothing may be removed")
		return
	}
	answer(w, http.StatusOK, runnerapi.RetireResponse{Answers: answers})
}

// retireSome asks about those pods that are lost, or those that are not, and puts each answer where its pod stands.
func retireSome(
	ctx context.Context, refs []runnerapi.PodRef, lost bool,
	ask func(context.Context, []dispatch.Pod) ([]runnerapi.RetireAnswer, error), answers []runnerapi.RetireAnswer,
) error {
	var pods []dispatch.Pod
	var at []int
	for i, ref := range refs {
		if ref.Lost == lost {
			pods, at = append(pods, toPod(ref)), append(at, i)
		}
	}
	if len(pods) == 0 {
		return nil
	}
	answered, err := ask(ctx, pods)
	if err != nil {
		return err
	}
	for k, i := range at {
		answers[i] = answered[k]
	}
	return nil
}

func toPod(ref runnerapi.PodRef) dispatch.Pod {
	return dispatch.Pod{
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
		Pool: dispatch.PoolRef{Namespace: ref.Namespace, Name: ref.Pool},
	}
}

func (s *Server) podsStopped(w http.ResponseWriter, r *http.Request) {
	if !s.controller(w, r) {
		return
	}
	var body runnerapi.PodStopped
	if !decode(w, r, &body) {
		return
	}
	if body.Pod.UID == "" || body.EndedAt.IsZero() {
		refuse(w, http.StatusBadRequest, "the report needs the pod's uid and when it ended")
		return
	}
	live, err := s.opt.Dispatcher.PodStopped(r.Context(), body.Pod.UID, body.EndedAt, body.ExitCode)
	if err != nil {
		s.opt.Log.ErrorContext(r.Context(), "recording the exit of a pod", "pod", body.Pod.Name, "error", err)
		retryLater(w, time.Second, "the report could not be stored, retry")
		return
	}
	s.keepTail(r.Context(), body)
	if live && s.opt.CheckPod != nil { // no other event of it may ever come
		if err := s.opt.CheckPod(r.Context(), body.Pod.UID); err != nil {
			s.opt.Log.WarnContext(r.Context(), "requesting a check of an exited pod failed; the next recovery pass checks it",
				"pod", body.Pod.Name, "error", err)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// keepTail keeps the last lines of a runner's log for administrators. A failure is logged, and fails no request.
func (s *Server) keepTail(ctx context.Context, stopped runnerapi.PodStopped) {
	if !stopped.Died || s.opt.Tails == nil {
		return
	}
	tail, cut := logtail.Of([]byte(stopped.Tail)) // bounded again, whatever the client sent
	err := s.opt.Tails.KeepTail(ctx, fleet.Tail{
		PodUID: stopped.Pod.UID, Namespace: stopped.Pod.Namespace, Pod: stopped.Pod.Name, Pool: stopped.Pod.Pool,
		EndedAt: stopped.EndedAt, ExitCode: stopped.ExitCode, Reason: stopped.Reason, Text: tail, Cut: cut || stopped.TailCut,
	})
	if err != nil {
		s.opt.Log.WarnContext(ctx, "storing the log of a runner", "pod", stopped.Pod.Name, "error", err)
	}
}

// signals answers completely or not at all: a watch or a ledger that cannot be read must not look like no demand (POOL-8).
func (s *Server) signals(w http.ResponseWriter, r *http.Request) {
	if !s.controller(w, r) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), signalsTimeout)
	defer cancel()
	if err := s.opt.Ready(ctx); err != nil { // POOL-8: pools that the watch has not shown yet are not pools without demand
		retryLater(w, time.Second, "demand is not known yet: "+err.Error())
		return
	}
	signals, err := s.opt.Dispatcher.Signals(ctx)
	if errors.Is(err, fleet.ErrLedgerFrozen) { // the hold has been logged, once
		retryLater(w, 5*time.Second, "demand is unknown: "+err.Error())
		return
	}
	if err != nil {
		if r.Context().Err() == nil {
			s.opt.Log.ErrorContext(r.Context(), "reading signals", "error", err)
		}
		retryLater(w, time.Second, "the database does not respond: demand is unknown")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	answer(w, http.StatusOK, signals)
}
