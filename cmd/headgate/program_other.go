//go:build !linux

package main

import "syscall"

// parentDeathAttr returns nil: only Linux can end a command with the thread that started it.
func parentDeathAttr() *syscall.SysProcAttr { return nil }
