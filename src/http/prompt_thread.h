// Asks the system to run the calling thread soon after it wakes: for one that sleeps most of its time and does little when it
// runs, beside threads that compute without end. A wish: systems that know nothing of it go on as before.
//   prefer_prompt_wakeups();
#pragma once

namespace lockstep {

void prefer_prompt_wakeups();

}  // namespace lockstep
