// Turns Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 (which mpirun and batch systems pass on) into a flag that long work checks between steps, so that it can save
// before it ends.
//   install_interrupt_handlers();
//   while (!interrupted()) step();
// A second Ctrl-C ends the process at once; so does a second SIGTERM, if it comes half a second or more after the first (some senders repeat it
// immediately). A repeated SIGHUP or SIGUSR1 does not. Any thread may ask.
#pragma once
#include "base/stop_token.h"

namespace lockstep {

// Handles SIGINT, SIGTERM, SIGHUP and SIGUSR1 in this process until it ends. A SIGHUP that is ignored (nohup) stays ignored. Blocking system calls
// return EINTR (no SA_RESTART).
void install_interrupt_handlers();

bool interrupted();
// The signal that came first, or 0; a process that stops for it exits with 128 + this.
int interrupt_signal();
// Error cancelled, when interrupted.
void throw_if_interrupted();
// The same flag for work that any owner may stop; clear_interrupt clears it here too.
StopToken interrupt_token();

// Makes SIGHUP mean "reload files" instead of "stop". True when it came since the last call.
void install_reload_handler();
bool take_reload();

// Forgets a signal: for a program that ended one answer on it and goes on.
void clear_interrupt();

}  // namespace lockstep
