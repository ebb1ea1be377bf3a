package httplimit

// HoldOf is for tests.
var HoldOf = holdOf
