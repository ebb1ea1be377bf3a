//go:build !race

package traffic_test

const raced = false
