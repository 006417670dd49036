#include "engine/drafts/verify.h"

#include <algorithm>

#include "base/philox.h"
#include "engine/draw_table.h"
#include "numerics/elementary_double.h"

namespace lockstep {

namespace {
Philox::Words verify_words(const SamplingParameters& s, std::int64_t position, std::uint32_t block, RandomStream stream) {
  return Philox::generate(s.seed, {block, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(s.sample_index), noise_word(stream, s)});
}

double verify_noise(std::uint32_t word) { return -log_double(-log_double((static_cast<double>(word >> 9) + 0.5) * 0x1p-23)); }
}  // namespace

double TokenLaw::chance_of(std::int32_t token) const {
  if (ids.empty()) return token >= 0 && token < std::ssize(chances) ? static_cast<double>(chances[static_cast<std::size_t>(token)]) : 0;
  const auto at = std::lower_bound(ids.begin(), ids.end(), token);
  return at != ids.end() && *at == token ? static_cast<double>(chances[static_cast<std::size_t>(at - ids.begin())]) : 0;
}

TokenLaw token_law(std::span<const float> logits, float temperature, const KeptTokens& kept) {
  TokenLaw law;
  if (kept.cut()) law.ids = kept.ids();
  const std::size_t count = law.ids.empty() ? logits.size() : law.ids.size();
  const auto logit = [&](std::size_t i) { return static_cast<double>(logits[law.ids.empty() ? i : static_cast<std::size_t>(law.ids[i])]); };
  double largest = logit(0), sum = 0;
  for (std::size_t i = 1; i < count; ++i) largest = std::max(largest, logit(i));
  std::vector<double> powers(count);
  for (std::size_t i = 0; i < count; ++i) sum += powers[i] = exp_double((logit(i) - largest) / static_cast<double>(temperature));
  for (const double power : powers) law.chances.push_back(static_cast<float>(power / sum));
  return law;
}

double acceptance_draw(const SamplingParameters& sampling, std::int64_t position) {
  const Philox::Words words = verify_words(sampling, position, 0, RandomStream::acceptance);
  return static_cast<double>((std::uint64_t{words[1]} << 32 | words[0]) >> 11) * 0x1p-53;
}

bool takes_guess(const TokenLaw& p, std::int32_t token, const TokenLaw* q, double draw) { return draw * (q ? q->chance_of(token) : 1.0) < p.chance_of(token); }

std::int32_t residual_draw(const TokenLaw& p, std::int32_t token, const TokenLaw* q, const SamplingParameters& sampling, std::int64_t position) {
  const auto drawn = [&](bool whole) {
    std::int32_t best = -1;
    double most = 0;
    Philox::Words words{};
    std::int64_t block = -1;  // of those words
    for (std::size_t i = 0; i < p.chances.size(); ++i) {
      const std::int32_t id = p.ids.empty() ? static_cast<std::int32_t>(i) : p.ids[i];
      double rest = static_cast<double>(p.chances[i]);
      if (!whole) rest -= q ? q->chance_of(id) : id == token ? 1.0 : 0.0;
      if (!(rest > 0) || id == token) continue;
      if (block != id / 4) words = verify_words(sampling, position, static_cast<std::uint32_t>(id / 4), RandomStream::residual);
      block = id / 4;
      const double score = log_double(rest) + verify_noise(words[static_cast<std::size_t>(id % 4)]);
      if (best < 0 || score > most) best = id, most = score;
    }
    return best;
  };
  const std::int32_t best = drawn(false);
  if (best >= 0) return best;
  // Rounding alone leaves no rest.
  const std::int32_t other = drawn(true);
  return other >= 0 ? other : token;
}

std::int32_t verified(const TokenLaw& p, std::int32_t token, const TokenLaw* q, const SamplingParameters& sampling, std::int64_t position) {
  return takes_guess(p, token, q, acceptance_draw(sampling, position)) ? token : residual_draw(p, token, q, sampling, position);
}

}  // namespace lockstep
