//go:build race

package traffic_test

// raced: the race detector is on, with which a million keys take minutes and gigabytes.
const raced = true
