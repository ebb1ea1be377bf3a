package main

import "syscall"

// endsWithThread makes a command end when the thread that started it does, as it
// does when this process is killed.
func endsWithThread() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
