// Implementation of sample.h: one row an item.
#include "kernels/head/log_sum.h"

namespace lockstep {

// g = -log(-log u) of sixteen random words.
template <class V>
inline V gumbel_noise(const std::uint32_t* words) {
  typename V::Elem u[16];
  for (int l = 0; l < 16; ++l) u[l] = element<typename V::Elem>((static_cast<float>(words[l] >> 9) + 0.5f) * 0x1p-23f);
  return V::zero() - log(V::zero() - log(V::load(u)));
}
// No noise is larger: u = 1 - 2^-24.
template <class V>
inline float largest_noise() {
  std::uint32_t words[16];
  for (std::uint32_t& w : words) w = 0xffffffffu;
  return value_of(gumbel_noise<V>(words).extract(0));
}

// The highest score so far; a tie goes to the lower id.
struct BestToken {
  float score = -__builtin_inff();
  std::int32_t id = -1;
};
template <class V>
inline void take_best(BestToken& best, const V& score, const std::int32_t* ids, int lanes) {
  typename V::Elem s[16];
  score.store(s);
  for (int l = 0; l < lanes; ++l) {
    const float value = value_of(s[l]);
    if (value > best.score || (value == best.score && ids[l] < best.id) || best.id < 0) best = {value, ids[l]};
  }
}

// Where a row's noise comes from.
struct NoiseKey {
  std::uint64_t seed;
  std::uint32_t position, sample;
};
template <class V>
inline Philox::Words noise_words(const NoiseKey& key, std::uint32_t block) {
  return Philox::generate(key.seed, {block, key.position, key.sample, static_cast<std::uint32_t>(RandomStream::sampling)});
}

// Arg-max of z + g over the whole vocabulary. Rounding is monotone and no noise exceeds `largest`, so no score of a group
// exceeds fl(max z + largest): a group whose bound is below the best score cannot win, nor at equality if its ids are higher.
// The group of the largest z goes first, so that the bound bites. `group_max`: scratch, one a group.
template <class V>
inline std::int32_t sample_all(const typename V::Elem* z, std::int64_t n, const NoiseKey& key, float largest, typename V::Elem* group_max) {
  const std::int64_t groups = (n + 15) / 16;
  std::int64_t first = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    typename V::Elem m = z[g * 16];
    for (std::int64_t i = g * 16 + 1; i < std::min(n, g * 16 + 16); ++i) m = m > z[i] ? m : z[i];
    group_max[g] = m;
    if (m > group_max[first]) first = g;
  }
  BestToken best;
  const auto score_group = [&](std::int64_t g) {
    std::uint32_t words[16];
    std::int32_t ids[16];
    for (int quad = 0; quad < 4; ++quad) {
      const Philox::Words w = noise_words<V>(key, static_cast<std::uint32_t>(g * 4 + quad));
      for (int l = 0; l < 4; ++l) words[quad * 4 + l] = w[static_cast<std::size_t>(l)];
    }
    for (int l = 0; l < 16; ++l) ids[l] = static_cast<std::int32_t>(g * 16 + l);
    const int lanes = lanes_left(n, g * 16);
    take_best<V>(best, V::load_partial(z + g * 16, lanes) + gumbel_noise<V>(words), ids, lanes);
  };
  score_group(first);
  for (std::int64_t g = 0; g < groups; ++g) {
    if (g == first) continue;
    const float bound = value_of(group_max[g]) + largest;
    if (bound < best.score || (bound == best.score && g * 16 > best.id)) continue;
    score_group(g);
  }
  return best.id;
}

// The same over `count` kept tokens, given by rank (z descending): once the bound of a rank is below the best, all later are.
template <class V>
inline std::int32_t sample_kept(const typename V::Elem* ranked, const std::uint64_t* order, std::int64_t count, const NoiseKey& key,
                                float largest) {
  BestToken best;
  for (std::int64_t i = 0; i < count; i += 16) {
    if (best.id >= 0 && value_of(ranked[i]) + largest < best.score) break;
    const int lanes = lanes_left(count, i);
    std::uint32_t words[16] = {};
    std::int32_t ids[16] = {};
    for (int l = 0; l < lanes; ++l) {
      const auto id = static_cast<std::uint32_t>(order[i + l]);
      words[l] = noise_words<V>(key, id / 4)[id % 4];
      ids[l] = static_cast<std::int32_t>(id);
    }
    take_best<V>(best, V::load_partial(ranked + i, lanes) + gumbel_noise<V>(words), ids, lanes);
  }
  return best.id;
}

// Sorts as (z descending, id ascending); -0 equals +0; no NaN. The id is the low word.
static std::uint64_t rank_key(float z, std::int64_t id) {
  const std::uint32_t bits = z == 0.0f ? 0u : float_bits(z);
  const std::uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
  return static_cast<std::uint64_t>(~ascending) << 32 | static_cast<std::uint32_t>(id);
}

template <class V>
inline void sample_row(const Sample& op, std::int64_t row, float largest) {
  using Elem = typename V::Elem;
  const std::int64_t n = op.logits.cols;
  const auto number = [row](const View& v) { return elements<V>(v)[row * v.stride]; };
  const auto integer = [row](const View& v) { return ints(v)[row * v.stride]; };
  const auto put = [&](std::int32_t token, const Elem& raw, const Elem& sampling) {
    ints(op.token)[row * op.token.stride] = token;
    elements<V>(op.raw_logprob)[row * op.raw_logprob.stride] = raw;
    elements<V>(op.sampling_logprob)[row * op.sampling_logprob.stride] = sampling;
  };
  const Elem* logits = elements<V>(op.logits) + row * op.logits.stride;
  const auto refuse = [&](const Elem& not_a_number) {
    ints(op.flags)[row * op.flags.stride] |= 1 << 3;
    put(-1, not_a_number, not_a_number);
  };
  const LogSum<V> raw = log_sum<V>(logits, n, op.maximum_leaves);
  if (!is_finite<V>(raw.log_sum)) return refuse(raw.log_sum);
  const Elem temperature = number(op.temperature);
  const float t = value_of(temperature);
  if (!(t > 0.0f)) {
    std::int64_t id = 0;
    while (value_of(logits[id]) != value_of(raw.maximum)) ++id;
    const Elem logprob = logits[id] - raw.log_sum;
    return put(static_cast<std::int32_t>(id), logprob, logprob);
  }
  const std::int64_t groups = (n + 15) / 16;
  Elem* scratch = thread_scratch<Elem>(static_cast<std::size_t>(3 * n + groups));
  const Elem* z = logits;
  LogSum<V> whole = raw;  // of z over the whole vocabulary
  if (t != 1.0f) {
    const V divisor = V::set1(temperature);
    for (std::int64_t i = 0; i < n; i += 16) {
      const int lanes = lanes_left(n, i);
      (V::load_partial(logits + i, lanes) / divisor).store_partial(scratch + i, lanes);
    }
    z = scratch;
    whole = log_sum<V>(z, n, op.maximum_leaves);
    if (!is_finite<V>(whole.log_sum)) return refuse(whole.log_sum);
  }
  const NoiseKey key{static_cast<std::uint32_t>(ints(op.seed)[row * op.seed.stride]) |
                         static_cast<std::uint64_t>(static_cast<std::uint32_t>(ints(op.seed)[row * op.seed.stride + 1])) << 32,
                     static_cast<std::uint32_t>(integer(op.position)), static_cast<std::uint32_t>(integer(op.sample))};
  const std::int32_t top_k = integer(op.top_k);
  const float top_p = value_of(number(op.top_p));
  const std::int64_t ranks = top_k > 0 ? std::min<std::int64_t>(top_k, n) : n;
  if (ranks == n && !(top_p < 1.0f)) {
    const std::int32_t token = sample_all<V>(z, n, key, largest, scratch + 3 * n);
    return put(token, logits[token] - raw.log_sum, z[token] - whole.log_sum);
  }

  std::uint64_t* order = thread_scratch<std::uint64_t>(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) order[i] = rank_key(value_of(z[i]), i);
  if (ranks < n) std::nth_element(order, order + ranks, order + n);
  std::sort(order, order + ranks);
  Elem* ranked = scratch + n;      // z by rank
  Elem* running = scratch + 2 * n; // exp(z - max), then its chain up to and with each rank
  for (std::int64_t i = 0; i < ranks; ++i) ranked[i] = z[static_cast<std::uint32_t>(order[i])];
  for (std::int64_t i = 0; i < ranks; i += 16) {
    const int lanes = lanes_left(ranks, i);
    exp(V::load_partial(ranked + i, lanes) - V::set1(ranked[0])).store_partial(running + i, lanes);
  }
  Elem sum = element<Elem>(0.0f);
  for (std::int64_t i = 0; i < ranks; ++i) running[i] = sum = sum + running[i];
  std::int64_t kept = ranks;
  if (top_p < 1.0f) {
    const float enough = top_p * value_of(sum);
    kept = 1;
    while (value_of(running[kept - 1]) < enough) ++kept;
  }
  const std::int32_t token = sample_kept<V>(ranked, order, kept, key, largest);
  const Elem kept_sum = kept == n ? whole.log_sum : ranked[0] + log_element<V>(running[kept - 1]);
  put(token, logits[token] - raw.log_sum, z[token] - kept_sum);
}

template <class V>
void sample(const Sample& op, ThreadPool& pool) {
  const float largest = largest_noise<V>();
  pool.run(op.logits.rows, [&](std::int64_t row) { sample_row<V>(op, row, largest); });
}

LOCKSTEP_INSTANTIATE(sample, Sample)

}  // namespace lockstep
