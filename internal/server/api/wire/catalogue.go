package wire

import (
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
)

// SetLimit returns the definition of a limit.
func SetLimit(r *pb.SetLimitRequest) *api.SetLimit {
	return &api.SetLimit{
		Name: r.GetName(), Limit: r.GetLimit(), Description: r.Description, Seen: r.Seen, Reason: r.GetReason(),
		DryRun: r.GetDryRun(),
	}
}

// SetLimitOf is the definition of a limit as a message.
func SetLimitOf(r *api.SetLimit) *pb.SetLimitRequest {
	return &pb.SetLimitRequest{
		Name: r.Name, Limit: r.Limit, Description: r.Description, Seen: r.Seen, Reason: r.Reason, DryRun: r.DryRun,
	}
}

// Override returns the limit of a key.
func Override(r *pb.SetOverrideRequest) *api.Override {
	return &api.Override{
		Subject: subject(r.GetLimit(), r.Key), Override: r.GetOverride(), Remove: r.GetRemove(), For: r.GetFor(),
		Reason: r.GetReason(),
	}
}

// OverrideOf is the limit of a key as a message.
func OverrideOf(r *api.Override) *pb.SetOverrideRequest {
	return &pb.SetOverrideRequest{
		Limit: r.Limit, Key: keyOf(r.Key, r.NoKey), Override: r.Override, Remove: r.Remove, For: r.For,
		Reason: r.Reason,
	}
}

// SetPlan returns the plan of a key.
func SetPlan(r *pb.SetPlanRequest) *api.SetPlan {
	out := &api.SetPlan{Plan: r.GetPlan(), Remove: r.GetRemove(), For: r.GetFor(), Reason: r.GetReason()}
	out.Key, out.NoKey = key(r.Key)
	return out
}

// SetPlanOf is the plan of a key as a message.
func SetPlanOf(r *api.SetPlan) *pb.SetPlanRequest {
	return &pb.SetPlanRequest{
		Key: keyOf(r.Key, r.NoKey), Plan: r.Plan, Remove: r.Remove, For: r.For, Reason: r.Reason,
	}
}

// Rollback returns the version to go back to.
func Rollback(r *pb.RollbackRequest) *api.Rollback {
	return &api.Rollback{
		Version: r.GetVersion(), NoVersion: r.Version == nil, Limits: r.GetLimits(), Seen: r.Seen,
		Reason: r.GetReason(), DryRun: r.GetDryRun(),
	}
}

// RollbackOf is the version to go back to as a message.
func RollbackOf(r *api.Rollback) *pb.RollbackRequest {
	out := &pb.RollbackRequest{Limits: r.Limits, Seen: r.Seen, Reason: r.Reason, DryRun: r.DryRun}
	if !r.NoVersion {
		out.Version = &r.Version
	}
	return out
}

// Changed returns what a change of the catalogue has changed.
func Changed(r *pb.ChangedResponse) *api.Changed {
	return &api.Changed{Version: r.GetVersion(), Changes: all(r.GetChanges(), func(c *pb.ItemChange) api.ItemChange {
		return api.ItemChange{
			Kind: c.GetKind(), Name: c.GetName(), Key: c.GetKey(), Before: c.GetBefore(), After: c.GetAfter(),
			Text: c.GetText(),
		}
	})}
}

// ChangedOf is what a change of the catalogue has changed, as a message.
func ChangedOf(r *api.Changed) *pb.ChangedResponse {
	return &pb.ChangedResponse{Version: r.Version, Changes: each(r.Changes, func(c api.ItemChange) *pb.ItemChange {
		return &pb.ItemChange{
			Kind: c.Kind, Name: c.Name, Key: c.Key, Before: c.Before, After: c.After, Text: c.Text,
		}
	})}
}
