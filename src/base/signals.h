// Ctrl-C, SIGTERM and SIGHUP (the terminal is gone) as a flag that long work looks at between steps, so that it can save and say how to go on.
// A second Ctrl-C ends the process at once, and so does a second SIGTERM half a second after the first or later (some senders
// say it twice in one breath; a SIGHUP that comes again is not meant so). Knows nothing of what is saved. Any thread may ask.
//   install_interrupt_handlers();
//   while (!interrupted()) step();
#pragma once
#include "base/stop_token.h"

namespace lockstep {

// For SIGINT, SIGTERM and SIGHUP, in this process, until it ends; a SIGHUP that is ignored (nohup) stays ignored. Blocking system calls return EINTR (no SA_RESTART).
void install_interrupt_handlers();

bool interrupted();
// The signal that came first, or 0; a process that stops for it exits with 128 + this.
int interrupt_signal();
// Error cancelled, when interrupted.
void throw_if_interrupted();
// The same flag for work that any owner may stop; clear_interrupt clears it here too.
StopToken interrupt_token();

// SIGHUP as a wish to read files anew instead of an end. True: it came since this was asked last.
void install_reload_handler();
bool take_reload();

// As if none had come: for a program that took it as the end of one answer, and goes on.
void clear_interrupt();

}  // namespace lockstep
