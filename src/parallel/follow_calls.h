// What a process other than the first does with the calls that process 0 makes (ProcessMail::call).
//   if (follow_calls([](ProcessMail& mail) { return [](const std::string& call) { ... }; })) return;   // of the joined processes (parallel/processes.h)
#pragma once
#include <functional>
#include <string>

#include "parallel/mail.h"

namespace lockstep {

using PerformCall = std::function<void(const std::string& call)>;
// In all but the first: performs each call of process 0 until that ends, and true; a call that fails is told to it. In the first, and in a process that
// has joined none: false, at once. `make` gives what performs calls.
bool follow_calls(const std::function<PerformCall(ProcessMail&)>& make);

}  // namespace lockstep
