// Calls that process 0 makes and the other processes repeat (ProcessMail::call): a number for the kind of call, then its values.
//   tell_call(mail, ModelCall::score, [&](ByteWriter& out) { put_sequences(out, data); });   // process 0
//   if (follow_calls([](ProcessMail& mail) { return [](const std::string& call) { ... }; })) return;   // the other processes
#pragma once
#include <functional>
#include <string>

#include "base/byte_record.h"
#include "parallel/mail.h"

namespace lockstep {

// In process 0: makes the other processes perform `call` with the values that `put` writes. Does nothing in a process that is alone.
template <class Call, class F>
void tell_call(ProcessMail& mail, Call call, const F& put) {
  if (mail.processes() == 1) return;
  ByteWriter out;
  out.value(call);
  put(out);
  mail.call(out.bytes());
}

using PerformCall = std::function<void(const std::string& call)>;
// In process 0, and in one that has joined no others, returns false at once. In any other, performs the calls of process 0, each with the function
// that `make` returns, until process 0 ends; then true. A call that fails here is reported to process 0.
bool follow_calls(const std::function<PerformCall(ProcessMail&)>& make);

}  // namespace lockstep
