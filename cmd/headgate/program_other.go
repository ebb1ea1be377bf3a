//go:build !linux

package main

import "syscall"

// endsWithThread exists on Linux only.
func endsWithThread() *syscall.SysProcAttr { return nil }
