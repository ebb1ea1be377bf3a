package main

import "os"

// passedOn are the signals that this process must not end by while its command runs. Windows passes none on.
var passedOn = []os.Signal{os.Interrupt}

// dieOfInterrupt does nothing: the exit code says enough.
func dieOfInterrupt() {}

// askToEnd ends a process, which cannot be asked.
func askToEnd(p *os.Process) error { return p.Kill() }

// hasItself reports that the console sends Ctrl-C to all its processes.
func hasItself(os.Signal) bool { return true }
