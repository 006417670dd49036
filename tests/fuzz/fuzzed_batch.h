// What every decoder of a training batch owes, whatever the bytes: a batch that the loss takes, or one error that says what is wrong.
#pragma once
#include <string>

#include "base/error.h"
#include "host/loss_inputs.h"

namespace lockstep {

// decode() gives the message; an error of any other kind than the client's, or without words, is a fault of ours.
template <class Decode>
void check_fuzzed_batch(const Decode& decode) {
  try {
    const auto message = decode();
    if (message.error) {
      if (std::string(message.error->what()).empty() || !message.batch.data.empty()) __builtin_trap();
      return;
    }
    const PreparedBatch prepared = prepare_batch(message.batch, {.vocabulary = 100, .max_positions = 64, .experts = {2, 2, 8}});
    if (prepared.sequences.size() != message.batch.data.size()) __builtin_trap();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::invalid_argument && e.code() != ErrorCode::unsupported) __builtin_trap();
    if (std::string(e.what()).empty()) __builtin_trap();
  }
}

}  // namespace lockstep
