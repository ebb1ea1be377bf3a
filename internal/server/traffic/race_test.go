//go:build race

package traffic_test

// raceDetector is true if the race detector is on, with which a million keys take minutes and gigabytes.
const raceDetector = true
