//go:build !linux

package main

import "syscall"

// endsWithThread is known on Linux only.
func endsWithThread() *syscall.SysProcAttr { return nil }
