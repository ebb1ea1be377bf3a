package main

import "syscall"

// parentDeathAttr makes the kernel send a command SIGTERM when the thread that started it ends. That thread also ends
// when this process is killed.
func parentDeathAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
