// For tests of what a process leaves behind when it dies or is refused at some point.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/error.h"

namespace lockstep {

// Runs `work` in a forked process and returns its wait status: exit 0 when it returned, 3 after an Error io, 4 after
// another Error.
inline int in_child(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      work();
    } catch (const Error& e) {
      _exit(e.code() == ErrorCode::io ? 3 : 4);
    }
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace lockstep
