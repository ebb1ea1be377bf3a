// Package wire turns the messages of gRPC into the types of package api, and back: both are the same
// verbs, which one implementation serves.
package wire

import (
	"encoding/json"

	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
)

// each maps a list; nil stays nil.
func each[A, B any](list []A, to func(A) B) []B {
	if list == nil {
		return nil
	}
	out := make([]B, len(list))
	for i, one := range list {
		out[i] = to(one)
	}
	return out
}

// all maps a list that JSON always has: none becomes an empty one.
func all[A, B any](list []A, to func(A) B) []B {
	if len(list) == 0 {
		return []B{}
	}
	return each(list, to)
}

func number(text string) json.Number { return json.Number(text) }

func text(n json.Number) string { return n.String() }

// key returns a key, and whether it is missing.
func key(k *string) (string, bool) {
	if k == nil {
		return "", true
	}
	return *k, false
}

// keyOf is a key on the wire.
func keyOf(k string, missing bool) *string {
	if missing {
		return nil
	}
	return &k
}

func charge(c *pb.Charge) api.Charge {
	k, missing := key(c.Key)
	return api.Charge{Limit: c.GetLimit(), Key: k, NoKey: missing, Cost: number(c.GetCost()), Keep: c.GetKeep()}
}

func chargeOf(c api.Charge) *pb.Charge {
	return &pb.Charge{Limit: c.Limit, Key: keyOf(c.Key, c.NoKey), Cost: text(c.Cost), Keep: c.Keep}
}

// split returns the charges of a message as a request of one charge has it, or one of several.
func split(list []*pb.Charge) (one api.Charge, several []api.Charge) {
	switch len(list) {
	case 0:
		return api.Charge{NoKey: true}, nil
	case 1:
		return charge(list[0]), nil
	}
	return api.Charge{NoKey: true}, each(list, charge)
}

// join is the reverse of split.
func join(one api.Charge, several []api.Charge) []*pb.Charge {
	if several != nil {
		return each(several, chargeOf)
	}
	return []*pb.Charge{chargeOf(one)}
}

// Request returns a request for charges.
func Request(r *pb.Request) *api.Request {
	out := new(api.Request)
	setRequest(out, r)
	return out
}

func setRequest(out *api.Request, r *pb.Request) {
	out.Check, out.ID, out.Life = r.GetCheck(), r.GetId(), r.GetLife()
	out.Charge, out.Charges = split(r.GetCharges())
}

// RequestOf is a request as a message.
func RequestOf(r *api.Request) *pb.Request {
	return &pb.Request{Charges: join(r.Charge, r.Charges), Check: r.Check, Id: r.ID, Life: r.Life}
}

// Batch returns a batch.
func Batch(b *pb.BatchRequest) *api.Batch {
	out := &api.Batch{Requests: make([]api.Request, len(b.GetRequests()))}
	for i, r := range b.GetRequests() {
		setRequest(&out.Requests[i], r)
	}
	return out
}

// BatchOf is a batch as a message.
func BatchOf(b *api.Batch) *pb.BatchRequest {
	return &pb.BatchRequest{Requests: each(b.Requests, func(r api.Request) *pb.Request { return RequestOf(&r) })}
}

// Reserve returns a request for a start that may lie ahead.
func Reserve(r *pb.ReserveRequest) *api.Reserve {
	out := &api.Reserve{Wait: r.GetWait()}
	setRequest(&out.Request, r.GetRequest())
	return out
}

// ReserveOf is such a request as a message.
func ReserveOf(r *api.Reserve) *pb.ReserveRequest {
	return &pb.ReserveRequest{Request: RequestOf(&r.Request), Wait: r.Wait}
}

// Settle returns a request to settle or to cancel.
func Settle(r *pb.SettleRequest) *api.Settle {
	out := &api.Settle{ID: r.GetId()}
	out.Charge, out.Charges = split(r.GetCharges())
	return out
}

// SettleOf is such a request as a message.
func SettleOf(r *api.Settle) *pb.SettleRequest {
	return &pb.SettleRequest{Id: r.ID, Charges: join(r.Charge, r.Charges)}
}

// Leases returns what is to be renewed or released.
func Leases(r *pb.LeasesRequest) *api.Leases { return &api.Leases{Held: each(r.GetHeld(), lease)} }

// LeasesOf is the same as a message.
func LeasesOf(r *api.Leases) *pb.LeasesRequest { return &pb.LeasesRequest{Held: each(r.Held, leaseOf)} }

func lease(h *pb.LeaseToken) api.LeaseToken {
	k, missing := key(h.Key)
	return api.LeaseToken{Limit: h.GetLimit(), Key: k, NoKey: missing, Number: h.GetNumber()}
}

func leaseOf(h api.LeaseToken) *pb.LeaseToken {
	return &pb.LeaseToken{Limit: h.Limit, Key: keyOf(h.Key, h.NoKey), Number: h.Number}
}

// subject is what Subject, ResetRequest and BlockRequest have in common.
func subject(limit string, k *string) api.Subject {
	name, missing := key(k)
	return api.Subject{Limit: limit, Key: name, NoKey: missing}
}

// Inspect returns a question about a key.
func Inspect(r *pb.InspectRequest) *api.InspectRequest {
	return &api.InspectRequest{Subject: subject(r.GetLimit(), r.Key), Attempts: int(r.GetAttempts())}
}

// InspectOf is a question about a key as a message.
func InspectOf(r *api.InspectRequest) *pb.InspectRequest {
	return &pb.InspectRequest{Limit: r.Limit, Key: keyOf(r.Key, r.NoKey), Attempts: int32(r.Attempts)}
}

// Reset returns what is to be forgotten.
func Reset(r *pb.ResetRequest) *api.ResetRequest {
	return &api.ResetRequest{Subject: subject(r.GetLimit(), r.Key), Reason: r.GetReason()}
}

// ResetOf is the same as a message.
func ResetOf(r *api.ResetRequest) *pb.ResetRequest {
	return &pb.ResetRequest{Limit: r.Limit, Key: keyOf(r.Key, r.NoKey), Reason: r.Reason}
}

// Block returns what is to be refused.
func Block(r *pb.BlockRequest) *api.Block {
	return &api.Block{Subject: subject(r.GetLimit(), r.Key), For: r.GetFor(), Reason: r.GetReason()}
}

// BlockOf is the same as a message.
func BlockOf(r *api.Block) *pb.BlockRequest {
	return &pb.BlockRequest{Limit: r.Limit, Key: keyOf(r.Key, r.NoKey), For: r.For, Reason: r.Reason}
}

// Observe returns the response of a provider.
func Observe(r *pb.ObserveRequest) *api.Observe {
	return &api.Observe{
		Subject: subject(r.GetLimit(), r.Key), Status: int(r.GetStatus()), Headers: r.GetHeaders(),
	}
}

// ObserveOf is the same as a message.
func ObserveOf(r *api.Observe) *pb.ObserveRequest {
	return &pb.ObserveRequest{
		Limit: r.Limit, Key: keyOf(r.Key, r.NoKey), Status: int32(r.Status), //nolint:gosec // the server refuses others
		Headers: r.Headers,
	}
}

// Explain returns the description of an HTTP request.
func Explain(r *pb.ExplainRequest) *api.Explain {
	return &api.Explain{
		Method: r.GetMethod(), Host: r.GetHost(), URI: r.GetUri(), Headers: r.GetHeaders(), Client: r.GetClient(),
	}
}

// ExplainOf is the same as a message.
func ExplainOf(e *api.Explain) *pb.ExplainRequest {
	return &pb.ExplainRequest{
		Method: e.Method, Host: e.Host, Uri: e.URI, Headers: e.Headers, Client: e.Client,
	}
}

// UsageQueryOf is a query for usage as a message.
func UsageQueryOf(q *api.UsageQuery) *pb.UsageRequest {
	return &pb.UsageRequest{Key: &q.Key, Limits: q.Limits, Authors: q.Authors}
}

// CellsQueryOf is a query for keys as a message.
func CellsQueryOf(q *api.CellsQuery) *pb.ListCellsRequest {
	return &pb.ListCellsRequest{
		Limit: q.Limit, Blocked: q.Blocked, Max: int64(q.Max),
		After: &pb.Subject{Limit: q.AfterLimit, Key: &q.AfterKey},
	}
}
