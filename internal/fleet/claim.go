package fleet

// ClaimState is the state of a pod's row in runner_claims: who owns the pod's single shot. A pod without a row is
// idle or booting.
type ClaimState string

// The states of a claim.
const (
	ClaimNone      ClaimState = ""          // no row: idle or booting
	ClaimClaimed   ClaimState = "claimed"   // owned by an account, no registration yet
	ClaimMinted    ClaimState = "minted"    // a registration exists, perhaps delivered
	ClaimExecuting ClaimState = "executing" // GitHub named this runner in in_progress
	ClaimSpent     ClaimState = "spent"     // its work is over or its registration is gone
	ClaimRetired   ClaimState = "retired"   // the fleet took the pod
)

// ClaimStates lists every state, ClaimNone included.
func ClaimStates() []ClaimState {
	return []ClaimState{ClaimNone, ClaimClaimed, ClaimMinted, ClaimExecuting, ClaimSpent, ClaimRetired}
}

// Live reports whether the claim is charged to its account and its pod may not be removed.
func (s ClaimState) Live() bool {
	return s == ClaimClaimed || s == ClaimMinted || s == ClaimExecuting
}

// ClaimEvent is something that happens to a pod's claim.
type ClaimEvent string

// The events of a claim's life.
const (
	ClaimEventClaim     ClaimEvent = "claim"     // a poll won a job
	ClaimEventMint      ClaimEvent = "mint"      // a registration was minted
	ClaimEventMintFails ClaimEvent = "unclaim"   // the mint definitely never happened: the healthy pod rejoins
	ClaimEventStarted   ClaimEvent = "started"   // in_progress named the runner
	ClaimEventCompleted ClaimEvent = "completed" // completed named the runner
	ClaimEventRelease   ClaimEvent = "release"   // its registrations are proven gone
	ClaimEventAdopt     ClaimEvent = "adopt"     // GitHub confirms that the runner runs a job now
	ClaimEventRetire    ClaimEvent = "retire"    // the fleet asks for the pod
)

// ClaimEvents lists every event.
func ClaimEvents() []ClaimEvent {
	return []ClaimEvent{
		ClaimEventClaim, ClaimEventMint, ClaimEventMintFails, ClaimEventStarted, ClaimEventCompleted,
		ClaimEventRelease, ClaimEventAdopt, ClaimEventRetire,
	}
}

type claimPair struct {
	state ClaimState
	event ClaimEvent
}

var claimMoves = map[claimPair]ClaimState{
	{ClaimNone, ClaimEventClaim}:  ClaimClaimed,
	{ClaimNone, ClaimEventRetire}: ClaimRetired, // EXCL-1: claim and retire race for one primary key
	{ClaimNone, ClaimEventAdopt}:  ClaimExecuting,

	{ClaimClaimed, ClaimEventMint}:      ClaimMinted,
	{ClaimClaimed, ClaimEventMintFails}: ClaimNone,
	{ClaimClaimed, ClaimEventStarted}:   ClaimExecuting, // in_progress overtook the mint's answer
	{ClaimClaimed, ClaimEventCompleted}: ClaimSpent,
	{ClaimClaimed, ClaimEventRelease}:   ClaimSpent,

	{ClaimMinted, ClaimEventStarted}:   ClaimExecuting,
	{ClaimMinted, ClaimEventCompleted}: ClaimSpent,
	{ClaimMinted, ClaimEventRelease}:   ClaimSpent,

	{ClaimExecuting, ClaimEventCompleted}: ClaimSpent,
	{ClaimExecuting, ClaimEventRelease}:   ClaimSpent,

	{ClaimSpent, ClaimEventAdopt}:   ClaimExecuting, // CLAIM-13
	{ClaimRetired, ClaimEventAdopt}: ClaimExecuting,
}

var claimKeeps = map[claimPair]bool{
	{ClaimMinted, ClaimEventMint}:       true, // a re-mint replaces the registration, the claim stays
	{ClaimExecuting, ClaimEventMint}:    true,
	{ClaimExecuting, ClaimEventStarted}: true,
	{ClaimExecuting, ClaimEventAdopt}:   true,
	{ClaimSpent, ClaimEventCompleted}:   true,
	{ClaimSpent, ClaimEventRelease}:     true,
	{ClaimSpent, ClaimEventRetire}:      true, // granted: its work is over
	{ClaimRetired, ClaimEventRetire}:    true, // granted again: EXCL-2 asks twice
	{ClaimRetired, ClaimEventCompleted}: true,
	{ClaimRetired, ClaimEventRelease}:   true,
}

// NextClaimState is the whole claim state machine. Refuse answers a retire of a live claim with "busy" and a claim
// of an owned pod with "already owned".
func NextClaimState(state ClaimState, event ClaimEvent) (ClaimState, Outcome) {
	if next, ok := claimMoves[claimPair{state, event}]; ok {
		return next, Move
	}
	if claimKeeps[claimPair{state, event}] {
		return state, Keep
	}
	return state, Refuse
}
