#include "train/gradient_file.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

namespace {
constexpr std::int64_t kWordsAtOnce = std::int64_t{1} << 20;

// The same bytes as 32-bit words, which a stream copies without looking at them.
View words_of(const View& view) {
  if (view.element_bytes % 4 != 0 || view.stride != view.cols)
    fail(ErrorCode::internal, "a view of {} with a stride of {} in a file of words, allowed are 4-byte elements without gaps", dtype_name(view.dtype),
         view.stride);
  View words = view.reshape(1, view.size() * (view.element_bytes / 4));
  words.dtype = DType::i32;
  words.element_bytes = 4;
  return words;
}

template <class F>
void each_part(const View& view, const F& f) {
  if (view.size() == 0) return;
  const View words = words_of(view);
  for (std::int64_t at = 0; at < words.cols; at += kWordsAtOnce) f(words.column_range(at, std::min(kWordsAtOnce, words.cols - at)));
}

// Calls f on every list of a sequence; f of reading fills it.
template <class Sequence, class F>
void each_list(Sequence& s, const F& f) {
  f(s.tokens), f(s.targets), f(s.weights), f(s.advantages), f(s.old_logprobs), f(s.proximal_logprobs), f(s.reference_logprobs);
  f(s.clip_low), f(s.clip_high), f(s.ratio_mask), f(s.experts);
}
struct SequenceNumbers {
  std::int64_t prefix_group, shared_prefix, targets_per_row, kept_rows;
  double temperature;
};
}  // namespace

std::filesystem::path gradient_file(const std::filesystem::path& folder, int rank) { return folder / fmt::format("rank-{}", rank); }

void write_view(CheckedWriter& file, Stream& stream, const View& view) {
  each_part(view, [&](const View& part) {
    const std::vector<std::int32_t> words = stream.read_ints(part).get();
    file.write(words.data(), words.size() * sizeof(std::int32_t));
  });
}

void read_view(CheckedReader& file, Stream& stream, const View& view) {
  std::vector<std::int32_t> words;
  each_part(view, [&](const View& part) {
    words.resize(static_cast<std::size_t>(part.cols));
    file.read(words.data(), words.size() * sizeof(std::int32_t));
    stream.write(part, words);
  });
}

void write_sequences(CheckedWriter& file, const std::vector<TrainSequence>& data) {
  file.value(static_cast<std::uint64_t>(data.size()));
  for (const TrainSequence& s : data) {
    file.value(SequenceNumbers{s.prefix_group, s.shared_prefix, s.targets_per_row, std::ssize(s.kept_tokens), static_cast<double>(s.temperature)});
    each_list(s, [&](const auto& list) { file.values(list); });
    for (const KeptTokens& kept : s.kept_tokens) {
      file.value(kept.order);
      file.value(kept.count);
      file.values(kept.words);
    }
  }
}

std::vector<TrainSequence> read_sequences(CheckedReader& file) {
  std::vector<TrainSequence> data;
  for (auto left = file.value<std::uint64_t>(); left > 0; --left) {
    TrainSequence& s = data.emplace_back();
    const auto numbers = file.value<SequenceNumbers>();
    s.prefix_group = numbers.prefix_group;
    s.shared_prefix = numbers.shared_prefix;
    s.targets_per_row = numbers.targets_per_row;
    s.temperature = static_cast<float>(numbers.temperature);
    each_list(s, [&](auto& list) { list = file.values<typename std::decay_t<decltype(list)>::value_type>(); });
    for (std::int64_t left_rows = numbers.kept_rows; left_rows > 0; --left_rows) {
      KeptTokens& kept = s.kept_tokens.emplace_back();
      kept.order = file.value<KeptTokens::Order>();
      kept.count = file.value<std::int32_t>();
      kept.words = file.values<std::int32_t>();
    }
  }
  return data;
}

}  // namespace lockstep
