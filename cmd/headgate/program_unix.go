//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passedOn are the signals that run passes on to its command.
var passedOn = []os.Signal{
	os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// dieOfInterrupt ends this process by SIGINT: a shell that runs a script ends with it only then.
func dieOfInterrupt() {
	signal.Reset(os.Interrupt)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // until it is delivered
}

// askToEnd asks a process to end.
func askToEnd(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// hasItself reports whether the command has got a signal too: a terminal sends what
// its keys mean to all in the foreground. Many programs take a second one for
// impatience.
func hasItself(s os.Signal) bool {
	if s != os.Interrupt && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false // there is no terminal
	}
	defer tty.Close()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}
