// Package doctest runs the documentation: every block of README.md and of the
// pages in docs, in the order of the page, in a folder of its own, against real
// servers. It has nothing but tests.
//
// How a block is treated depends on its language:
//
//	sh              a shell runs it; `headgate serve` goes on in the background
//	sql             psql runs it, or with the word mysql after sql, the mysql client
//	text, json      what the block before it prints
//	go              is compiled and run, unless its first line names a file
//	others          are written to the file that their first line names, in a comment
//
// The few that cannot run are named in the test, each with its reason. A block of
// no language fails.
package doctest
