//go:build !linux

package main

import "syscall"

// endsWithThread can be told on Linux only.
func endsWithThread() *syscall.SysProcAttr { return nil }
