package wire

import (
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
)

// Answers returns the answers to a batch. One that is neither a decision nor a problem is empty.
func Answers(a *pb.BatchResponse) *api.Answers {
	return &api.Answers{Answers: all(a.GetAnswers(), func(a *pb.Answer) (out api.Answer) {
		if d := a.GetDecision(); d != nil {
			out.Decision = Decision(d)
		}
		if p := a.GetProblem(); p != nil {
			out.Problem = Problem(p)
		}
		return out
	})}
}

// Filled returns the answer to a fill-up.
func Filled(f *pb.FillUpResponse) *api.Filled {
	return &api.Filled{
		Decision: *Decision(f.GetDecision()), Accepted: number(f.GetAccepted()), Level: number(f.GetLevel()),
		Brim: f.GetBrim(),
	}
}

// Reserved returns the answer to a reservation.
func Reserved(r *pb.ReserveResponse) *api.Reserved {
	return &api.Reserved{
		Decision: *Decision(r.GetDecision()), StartAt: r.StartAt, DelayMS: r.DelayMs, Refundable: r.GetRefundable(),
	}
}

// Extended returns the answer to an extension.
func Extended(e *pb.ExtendResponse) *api.Extended {
	return &api.Extended{Decision: *Decision(e.GetDecision()), Charged: all(e.GetCharged(), number)}
}

// Settled returns the answer to a settlement.
func Settled(s *pb.SettleResponse) *api.Settled {
	return &api.Settled{Corrected: all(s.GetCorrected(), number)}
}

// Acquired returns what is held.
func Acquired(a *pb.AcquireResponse) *api.Acquired {
	return &api.Acquired{Decision: *Decision(a.GetDecision()), Held: each(a.GetHeld(), lease), TTLMS: a.GetTtlMs()}
}

// Lost returns the answer to what renews or releases.
func Lost(l *pb.LeasesResponse) *api.Lost { return &api.Lost{Lost: l.GetLost()} }

// Status returns what is known about a key; of nothing it is zero.
func Status(s *pb.Status) *api.Status {
	if s == nil {
		return new(api.Status)
	}
	out := &api.Status{
		Limit: s.GetLimit(), Key: s.GetKey(), Exists: s.GetExists(), Rule: s.GetRule(),
		Applied: s.GetApplied(), Used: number(s.GetUsed()), Capacity: number(s.GetCapacity()),
		At: s.GetAt(), ResetAt: s.ResetAt, BlockedUntil: s.BlockedUntil, Reason: s.GetReason(),
		History: each(s.GetHistory(), func(a *pb.Attempt) api.Attempt {
			return api.Attempt{Number: a.GetNumber(), At: a.GetAt(), Cost: number(a.GetCost()), Allowed: a.GetAllowed()}
		}),
	}
	if s.Remaining != nil {
		out.Remaining = &api.Amount{Units: s.GetRemaining(), Nanos: s.GetRemainingNanos()}
	}
	return out
}

// Usage returns what a key has used.
func Usage(u *pb.UsageResponse) *api.Usage {
	return &api.Usage{
		Key: u.GetKey(),
		Limits: all(u.GetLimits(), func(l *pb.LimitUsage) api.LimitUsage {
			return api.LimitUsage{
				Status: *Status(l.GetStatus()), RetryAfterMS: l.RetryAfterMs, ResetAfterMS: l.GetResetAfterMs(),
				BlockedBy: l.GetBlockedBy(), AppliedUntil: l.AppliedUntil, AppliedReason: l.GetAppliedReason(),
				AppliedBy: l.GetAppliedBy(), Hint: l.GetHint(),
			}
		}),
		Refusals: all(u.GetRefusals(), func(r *pb.Refusal) api.Refusal {
			return api.Refusal{
				At: r.GetAt(), Limit: r.GetLimit(), Cost: number(r.GetCost()), Keep: r.GetKeep(),
				RetryAfterMS: r.RetryAfterMs,
			}
		}),
	}
}

// Limits returns the named limits.
func Limits(l *pb.ListLimitsResponse) *api.Limits {
	return &api.Limits{Limits: all(l.GetLimits(), func(l *pb.Limit) api.Limit {
		return api.Limit{
			Name: l.GetName(), Limit: l.GetLimit(), Description: l.GetDescription(), Bound: l.GetBound(),
		}
	})}
}

// Cells returns keys.
func Cells(c *pb.ListCellsResponse) *api.Cells {
	return &api.Cells{Cells: all(c.GetCells(), func(s *pb.Status) api.Status { return *Status(s) })}
}

// Observed reads for how long a key is blocked.
func Observed(o *pb.ObserveResponse) *api.Observed {
	return &api.Observed{BlockedForMS: o.GetBlockedForMs(), Field: o.GetField()}
}

// Explanation returns an explanation.
func Explanation(e *pb.ExplainResponse) *api.Explanation {
	out := &api.Explanation{
		Allowed: e.GetAllowed(), Why: e.GetWhy(), Rule: e.GetRule(), At: e.GetAt(), Mode: e.GetMode(),
		Listed: e.GetListed(), Once: e.GetOnce(),
		Charges: all(e.GetCharges(), func(c *pb.ExplainedCharge) (out api.ExplainCharge) {
			out.Settle = c.GetSettle()
			if c.GetCharge() != nil {
				out.Charge = charge(c.GetCharge())
			}
			return out
		}),
		Rules: all(e.GetRules(), func(v *pb.Verdict) api.Verdict {
			return api.Verdict{Rule: v.GetRule(), At: v.GetAt(), Matches: v.GetMatches(), Why: v.GetWhy()}
		}),
	}
	if d := e.GetDecision(); d != nil {
		out.Decision = Decision(d)
	}
	if p := e.GetProblem(); p != nil {
		out.Problem = Problem(p)
	}
	return out
}

// Forgotten returns the answer to a reset.
func Forgotten(r *pb.ResetResponse) *api.Reset { return &api.Reset{Existed: r.GetExisted()} }

// ForgottenOf is the answer to a reset as a message.
func ForgottenOf(r *api.Reset) *pb.ResetResponse { return &pb.ResetResponse{Existed: r.Existed} }
