package httplimit

// HoldOf exports holdOf.
var HoldOf = holdOf
