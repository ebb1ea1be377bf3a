package wire

import (
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
)

// DecisionOf is a decision as a message.
func DecisionOf(d *api.Decision) *pb.Decision {
	return &pb.Decision{
		Allowed: d.Allowed, Limit: d.Limit, Key: d.Key, Capacity: d.Capacity.Units, Remaining: d.Remaining.Units,
		CapacityNanos: d.Capacity.Nanos, RemainingNanos: d.Remaining.Nanos,
		RetryAfterMs: d.RetryAfterMS, ResetAfterMs: d.ResetAfterMS, At: d.At, Entry: d.Entry, Via: d.Via,
		Replayed: d.Replayed, Applied: d.Applied, Each: each(d.Each, figuresOf),
	}
}

// Decision returns a decision; of none it is a refusal.
func Decision(d *pb.Decision) *api.Decision {
	if d == nil {
		return new(api.Decision)
	}
	return &api.Decision{
		Allowed: d.GetAllowed(), Limit: d.GetLimit(), Key: d.GetKey(),
		Capacity:     api.Amount{Units: d.GetCapacity(), Nanos: d.GetCapacityNanos()},
		Remaining:    api.Amount{Units: d.GetRemaining(), Nanos: d.GetRemainingNanos()},
		RetryAfterMS: d.RetryAfterMs, ResetAfterMS: d.GetResetAfterMs(), At: d.GetAt(),
		Entry: d.GetEntry(), Via: d.GetVia(), Replayed: d.GetReplayed(),
		Applied: d.GetApplied(), Each: each(d.GetEach(), figures),
	}
}

func figuresOf(f api.Figures) *pb.Figures {
	return &pb.Figures{
		Charge: int64(f.Charge), Allowed: f.Allowed, Limit: f.Limit, Key: f.Key, Capacity: f.Capacity.Units,
		Remaining: f.Remaining.Units, CapacityNanos: f.Capacity.Nanos, RemainingNanos: f.Remaining.Nanos,
		RetryAfterMs: f.RetryAfterMS, ResetAfterMs: f.ResetAfterMS, Applied: f.Applied,
	}
}

func figures(f *pb.Figures) api.Figures {
	return api.Figures{
		Charge: int(f.GetCharge()), Allowed: f.GetAllowed(), Limit: f.GetLimit(), Key: f.GetKey(),
		Capacity:  api.Amount{Units: f.GetCapacity(), Nanos: f.GetCapacityNanos()},
		Remaining: api.Amount{Units: f.GetRemaining(), Nanos: f.GetRemainingNanos()}, RetryAfterMS: f.RetryAfterMs,
		ResetAfterMS: f.GetResetAfterMs(), Applied: f.GetApplied(),
	}
}

// ProblemOf is a problem as a message; nil stays nil.
func ProblemOf(p *api.Problem) *pb.Problem {
	if p == nil {
		return nil
	}
	return &pb.Problem{Type: p.Type, Title: p.Title, Status: int64(p.Status), Detail: p.Detail, Field: p.Field}
}

// Problem returns a problem.
func Problem(p *pb.Problem) *api.Problem {
	return &api.Problem{
		Type: p.GetType(), Title: p.GetTitle(), Status: int(p.GetStatus()), Detail: p.GetDetail(), Field: p.GetField(),
	}
}

// AnswersOf are the answers to a batch as a message.
func AnswersOf(a *api.Answers) *pb.BatchResponse {
	return &pb.BatchResponse{Answers: each(a.Answers, func(a api.Answer) *pb.Answer {
		if a.Decision == nil {
			return &pb.Answer{Result: &pb.Answer_Problem{Problem: ProblemOf(a.Problem)}}
		}
		return &pb.Answer{Result: &pb.Answer_Decision{Decision: DecisionOf(a.Decision)}}
	})}
}

// FilledOf is the answer to a fill-up as a message.
func FilledOf(f *api.Filled) *pb.FillUpResponse {
	return &pb.FillUpResponse{
		Decision: DecisionOf(&f.Decision), Accepted: text(f.Accepted), Level: text(f.Level), Brim: f.Brim,
	}
}

// ReservedOf is the answer to a reservation as a message.
func ReservedOf(r *api.Reserved) *pb.ReserveResponse {
	return &pb.ReserveResponse{
		Decision: DecisionOf(&r.Decision), StartAt: r.StartAt, DelayMs: r.DelayMS, Refundable: r.Refundable,
	}
}

// ExtendedOf is the answer to an extension as a message.
func ExtendedOf(e *api.Extended) *pb.ExtendResponse {
	return &pb.ExtendResponse{Decision: DecisionOf(&e.Decision), Charged: each(e.Charged, text)}
}

// SettledOf is the answer to a settlement as a message.
func SettledOf(s *api.Settled) *pb.SettleResponse {
	return &pb.SettleResponse{Corrected: each(s.Corrected, text)}
}

// AcquiredOf is what is held, as a message.
func AcquiredOf(a *api.Acquired) *pb.AcquireResponse {
	return &pb.AcquireResponse{Decision: DecisionOf(&a.Decision), Held: each(a.Held, leaseOf), TtlMs: a.TTLMS}
}

// LostOf is the answer to what renews or releases, as a message.
func LostOf(l *api.Lost) *pb.LeasesResponse { return &pb.LeasesResponse{Lost: l.Lost} }

// ObservedOf says for how long a key is blocked, as a message.
func ObservedOf(o *api.Observed) *pb.ObserveResponse {
	return &pb.ObserveResponse{BlockedForMs: o.BlockedForMS, Field: o.Field}
}

// StatusOf is what is known about a key, as a message.
func StatusOf(s *api.Status) *pb.Status {
	out := &pb.Status{
		Limit: s.Limit, Key: s.Key, Exists: s.Exists, Rule: s.Rule, Applied: s.Applied,
		Used: text(s.Used), Capacity: text(s.Capacity), At: s.At, ResetAt: s.ResetAt,
		BlockedUntil: s.BlockedUntil, Reason: s.Reason,
		History: each(s.History, func(a api.Attempt) *pb.Attempt {
			return &pb.Attempt{Number: a.Number, At: a.At, Cost: text(a.Cost), Allowed: a.Allowed}
		}),
	}
	if s.Remaining != nil {
		out.Remaining, out.RemainingNanos = &s.Remaining.Units, s.Remaining.Nanos
	}
	return out
}

// UsageOf is what a key has used, as a message.
func UsageOf(u *api.Usage) *pb.UsageResponse {
	return &pb.UsageResponse{
		Key: u.Key,
		Limits: each(u.Limits, func(l api.LimitUsage) *pb.LimitUsage {
			return &pb.LimitUsage{
				Status: StatusOf(&l.Status), RetryAfterMs: l.RetryAfterMS, ResetAfterMs: l.ResetAfterMS,
				BlockedBy: l.BlockedBy, AppliedUntil: l.AppliedUntil, AppliedReason: l.AppliedReason,
				AppliedBy: l.AppliedBy, Hint: l.Hint,
			}
		}),
		Refusals: each(u.Refusals, func(r api.Refusal) *pb.Refusal {
			return &pb.Refusal{
				At: r.At, Limit: r.Limit, Cost: text(r.Cost), Keep: r.Keep, RetryAfterMs: r.RetryAfterMS,
			}
		}),
	}
}

// LimitsOf are the named limits as a message.
func LimitsOf(l *api.Limits) *pb.ListLimitsResponse {
	return &pb.ListLimitsResponse{Limits: each(l.Limits, func(l api.Limit) *pb.Limit {
		return &pb.Limit{Name: l.Name, Limit: l.Limit, Description: l.Description, Bound: l.Bound}
	})}
}

// CellsOf are keys as a message.
func CellsOf(c *api.Cells) *pb.ListCellsResponse {
	return &pb.ListCellsResponse{Cells: each(c.Cells, func(s api.Status) *pb.Status { return StatusOf(&s) })}
}

// ExplanationOf is an explanation as a message.
func ExplanationOf(e *api.Explanation) *pb.ExplainResponse {
	out := &pb.ExplainResponse{
		Allowed: e.Allowed, Why: e.Why, Rule: e.Rule, At: e.At, Mode: e.Mode, Listed: e.Listed, Once: e.Once,
		Problem: ProblemOf(e.Problem),
		Charges: each(e.Charges, func(c api.ExplainCharge) *pb.ExplainedCharge {
			return &pb.ExplainedCharge{Charge: chargeOf(c.Charge), Settle: c.Settle}
		}),
		Rules: each(e.Rules, func(v api.Verdict) *pb.Verdict {
			return &pb.Verdict{Rule: v.Rule, At: v.At, Matches: v.Matches, Why: v.Why}
		}),
	}
	if e.Decision != nil {
		out.Decision = DecisionOf(e.Decision)
	}
	return out
}
