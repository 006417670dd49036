// Asks the scheduler to run the calling thread soon after it wakes: for an I/O thread that mostly sleeps, beside threads that compute all the
// time. A hint: systems that do not support it ignore it.
//   prefer_prompt_wakeups();
#pragma once

namespace lockstep {

void prefer_prompt_wakeups();

}  // namespace lockstep
