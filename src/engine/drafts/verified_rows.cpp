#include "engine/drafts/verified_rows.h"

#include <algorithm>

#include "kernels/launch.h"

namespace lockstep {

const Drafting::Guess* checked_guess(const Sequence& s, std::int64_t nth) {
  if (!s.drafting || !s.drafting->rejects || nth >= std::ssize(s.drafting->guess)) return nullptr;
  return &s.drafting->guess[static_cast<std::size_t>(nth)];
}

LawRows::LawRows(Backend& backend, const std::vector<bool>& wanted, std::int64_t vocabulary) : backend_(backend) {
  for (const bool is : wanted) kept_row_.push_back(is ? count_++ : -1);
  if (count_ == 0) return;
  kept_ = backend.device().allocate_zero(DType::i32, count_, 2 + KeptTokens::bitmap_words(vocabulary), MemoryCategory::workspace);
  rows_ = backend.device().upload(kept_row_, std::ssize(kept_row_), 1, MemoryCategory::workspace);
}

void LawRows::attach(Sample& sample) const {
  if (count_ == 0) return;
  sample.kept = kept_.view();
  sample.kept_row = rows_.view();
}

std::vector<TokenLaw> LawRows::read(const Sample& sample, std::span<const float> temperature) const {
  std::vector<TokenLaw> laws(kept_row_.size());
  if (count_ == 0) return laws;
  Stream& stream = backend_.stream();
  const std::vector<std::int32_t> words = stream.read_ints(kept_.view()).get();
  const std::vector<std::int32_t> adjusted = sample.adjusted ? stream.read_ints(sample.adjusted_row).get() : std::vector<std::int32_t>(laws.size(), -1);
  const std::int64_t width = kept_.view().cols;
  for (std::size_t i = 0; i < laws.size(); ++i) {
    if (kept_row_[i] < 0) continue;
    const auto at = words.begin() + kept_row_[i] * width;
    if (at[1] == 0) continue;  // no numbers: such a row keeps nothing
    KeptTokens kept;
    if (at[0] != 0) {
      kept.order = static_cast<KeptTokens::Order>(at[0]);
      kept.count = at[1];
      kept.words.assign(at + 2, at + 2 + std::min<std::int64_t>(kept.count, width - 2));
    }
    const View row = adjusted[i] >= 0 ? sample.adjusted.row_range(adjusted[i], 1) : sample.logits.row_range(static_cast<std::int64_t>(i), 1);
    const std::vector<float> logits = stream.read(row).get();
    laws[i] = token_law(logits, temperature[i], kept);
  }
  return laws;
}

namespace {
// Writes to `chosen` what becomes of guesses at rows that have no token yet.
void verify_guesses(Backend& backend, std::span<const SampledRow> rows, const Sample& sample, std::vector<std::int32_t>& chosen) {
  std::vector<bool> wanted;
  std::vector<float> temperature;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    wanted.push_back(chosen[i] < 0 && checked_guess(*rows[i].sequence, rows[i].nth) != nullptr);
    temperature.push_back(rows[i].sequence->sampling.temperature);
  }
  const LawRows laws(backend, wanted, sample.logits.cols);
  if (!laws.any()) return;
  // What is drawn here is not told: the kept sets are.
  const std::int64_t count = sample.logits.rows;
  const Buffer token = backend.device().allocate(DType::i32, count, 1, MemoryCategory::workspace),
               flags = backend.device().allocate_zero(DType::i32, count, 1, MemoryCategory::workspace),
               raw = backend.device().allocate(DType::f32, count, 1, MemoryCategory::workspace),
               sampling = backend.device().allocate(DType::f32, count, 1, MemoryCategory::workspace);
  Sample first = sample;
  first.token = token.view();
  first.flags = flags.view();
  first.raw_logprob = raw.view();
  first.sampling_logprob = sampling.view();
  laws.attach(first);
  backend.launch(&KernelTable::sample, first);
  const std::vector<std::int32_t> faults = backend.stream().read_ints(flags.view()).get();
  const std::vector<TokenLaw> p = laws.read(first, temperature);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!wanted[i] || faults[i] != 0) continue;
    const Drafting::Guess& guess = *checked_guess(*rows[i].sequence, rows[i].nth);
    chosen[i] = verified(p[i], guess.token, guess.law.get(), rows[i].sequence->sampling, rows[i].known);
  }
}
}  // namespace

VerifiedRows::VerifiedRows(Backend& backend, std::span<const SampledRow> rows, Sample& sample) {
  std::vector<std::int32_t> chosen;
  for (const SampledRow& row : rows) chosen.push_back(row.sequence->given_at(row.known));
  verify_guesses(backend, rows, sample, chosen);
  if (std::all_of(chosen.begin(), chosen.end(), [](std::int32_t token) { return token < 0; })) return;
  chosen_ = backend.device().upload(chosen, sample.logits.rows, 1, MemoryCategory::workspace);
  sample.chosen = chosen_.view();
}

}  // namespace lockstep
