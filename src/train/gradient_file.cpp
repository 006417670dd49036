#include "train/gradient_file.h"

#include <algorithm>

#include "base/error.h"
#include "train/sequence_record.h"

namespace lockstep {

namespace {
// A block of the file: read, hashed and copied while it is in a processor's own cache. With blocks of 4 MB each of the three went to memory.
constexpr std::int64_t kWordsAtOnce = std::int64_t{1} << 16;

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
  for (const TrainSequence& s : data)
    if (s.teacher) fail(ErrorCode::unsupported, "a sequence has a teacher, whose head stands in memory alone; allowed is a gradient that stays there");
  put_sequences(file, data);
}

std::vector<TrainSequence> read_sequences(CheckedReader& file) { return taken_sequences(file); }

}  // namespace lockstep
