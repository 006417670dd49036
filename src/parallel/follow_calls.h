// Calls that process 0 makes and the other processes repeat (ProcessMail::call): a number for the kind of call, then its values.
//   tell_call(mail, ModelCall::score, [&](ByteWriter& out) { put_sequences(out, data); });   // process 0
//   if (follow_calls([](ProcessMail& mail) { return [](const std::string& call) { ... }; })) return;   // the other processes
#pragma once
#include <functional>
#include <string>

#include "base/byte_record.h"
#include "parallel/mail.h"

namespace lockstep {

// The others follow `call`, whose values `put` writes. A process that is alone tells nobody.
template <class Call, class F>
void tell_call(ProcessMail& mail, Call call, const F& put) {
  if (mail.processes() == 1) return;
  ByteWriter out;
  out.value(call);
  put(out);
  mail.call(out.bytes());
}

using PerformCall = std::function<void(const std::string& call)>;
// In all but the first: performs each call of process 0 until that ends, and true; a call that fails is told to it. In the first, and in a process that
// has joined none: false, at once. `make` gives what performs calls.
bool follow_calls(const std::function<PerformCall(ProcessMail&)>& make);

}  // namespace lockstep
