// Writes a call's sequences to bytes and reads them back, with any writer that has value() and values() (base/checked_file.h, base/byte_record.h).
// The reader is a process of the same build. Of a sequence with a teacher its states are written, and not its head: that goes to other processes by itself
// (put_teacher_head).
//   put_sequences(file, data); data = taken_sequences(file);
#pragma once
#include "base/error.h"
#include "train/data.h"

namespace lockstep {

// Calls f on every list of a sequence; f of reading fills it.
template <class Sequence, class F>
void each_list(Sequence& s, const F& f) {
  f(s.tokens), f(s.targets), f(s.weights), f(s.advantages), f(s.old_logprobs), f(s.proximal_logprobs), f(s.reference_logprobs);
  f(s.clip_low), f(s.clip_high), f(s.ratio_mask), f(s.experts), f(s.teacher_states);
}

struct SequenceNumbers {
  std::int64_t prefix_group, shared_prefix, targets_per_row, kept_rows;
  double temperature;
};

template <class Writer>
void put_sequences(Writer& out, const std::vector<TrainSequence>& data) {
  out.value(static_cast<std::uint64_t>(data.size()));
  for (const TrainSequence& s : data) {
    out.value(SequenceNumbers{s.prefix_group, s.shared_prefix, s.targets_per_row, std::ssize(s.kept_tokens), static_cast<double>(s.temperature)});
    each_list(s, [&](const auto& list) { out.values(list); });
    for (const KeptTokens& kept : s.kept_tokens) {
      out.value(kept.order);
      out.value(kept.count);
      out.values(kept.words);
    }
  }
}

template <class Reader>
std::vector<TrainSequence> taken_sequences(Reader& in) {
  std::vector<TrainSequence> data;
  for (auto left = in.template value<std::uint64_t>(); left > 0; --left) {
    TrainSequence& s = data.emplace_back();
    const auto numbers = in.template value<SequenceNumbers>();
    s.prefix_group = numbers.prefix_group;
    s.shared_prefix = numbers.shared_prefix;
    s.targets_per_row = numbers.targets_per_row;
    s.temperature = static_cast<float>(numbers.temperature);
    each_list(s, [&](auto& list) { list = in.template values<typename std::decay_t<decltype(list)>::value_type>(); });
    for (std::int64_t left_rows = numbers.kept_rows; left_rows > 0; --left_rows) {
      KeptTokens& kept = s.kept_tokens.emplace_back();
      kept.order = in.template value<KeptTokens::Order>();
      kept.count = in.template value<std::int32_t>();
      kept.words = in.template values<std::int32_t>();
    }
  }
  return data;
}

}  // namespace lockstep
