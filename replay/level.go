package replay
import ("context"; "github.com/headgate/headgate")

type picture struct{}

func trace(ctx context.Context, limit headgate.Limit, in *input) error { return nil }
