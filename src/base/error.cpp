#include "base/error.h"

#include <algorithm>
#include <array>

namespace lockstep {

std::string_view error_code_name(ErrorCode code) {
  static constexpr std::array<std::string_view, 10> names = {"invalid_argument",   "not_found",   "already_exists", "corrupt_file", "io",
                                                             "resource_exhausted", "unsupported", "cancelled",      "numeric",      "internal"};
  return names[static_cast<std::size_t>(code)];
}

Error::Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)), text_(message_) {}

void Error::add_context(std::string doing) {
  chain_.push_back(std::move(doing));
  text_ = message_ + " (while " + fmt::format("{}", fmt::join(chain_, "; while ")) + ")";
}

void fail_with_arguments(ErrorCode code, fmt::string_view format, fmt::format_args args) { throw Error(code, fmt::vformat(format, args)); }

namespace {
// Damerau-Levenshtein distance: insertions, deletions, substitutions, transpositions of neighbours.
int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before, last, row(b.size() + 1);  // of the prefixes of a: two shorter, one shorter, this one
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::move(last);
    last = row;
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] != b[j - 1]), last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}
}  // namespace

std::string did_you_mean(std::string_view got, const std::vector<std::string>& candidates) {
  if (got.size() > 100) return "";
  // At most a third of a word may differ: short words that merely share a letter or two are no likely typos.
  const std::size_t letters = got.size() - std::min(got.find_first_not_of("-/"), got.size());
  int best = std::clamp(static_cast<int>(letters + 1) / 3, 1, 3) + 1;
  const std::string* nearest = nullptr;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(got, candidate);
    if (distance < best && distance < static_cast<int>(candidate.size())) {
      best = distance;
      nearest = &candidate;
    }
  }
  // A prefix of a word counts as that word.
  if (!nearest && letters >= 3)
    for (const std::string& candidate : candidates)
      if (candidate.starts_with(got)) nearest = nearest ? nearest : &candidate;
  return nearest ? fmt::format("; did you mean '{}'?", *nearest) : "";
}

}  // namespace lockstep
