// Implementation of sample.h: one work item per row.
#include "kernels/head/log_sum.h"
#include "kernels/sample/allowed.h"
#include "kernels/sample/noise.h"

namespace lockstep {

// The noise of sixteen random words.
template <class V>
inline V gumbel_noise(const std::uint32_t* words) {
  typename V::Elem u[16];
  for (int l = 0; l < 16; ++l) u[l] = noise_uniform<V>(words[l]);
  return gumbel_of(V::load(u));
}

template <class V>
inline void take_best(BestToken& best, const V& score, const std::int32_t* ids, int lanes) {
  typename V::Elem s[16];
  score.store(s);
  for (int l = 0; l < lanes; ++l)
    if (const BestToken one{value_of(s[l]), ids[l]}; goes_before<V>(one, best)) best = one;
}

// Arg-max of z + g over the whole vocabulary. Rounding is monotone and no noise exceeds `largest`, so no score of a group
// exceeds fl(max z + largest): a group whose bound is below the best score cannot win, nor at equality if its ids are higher.
// The group of the largest z goes first, so that the bound bites. `group_max`: scratch, one per group.
// `allowed`: the ids of z, ascending, or null where they are 0 .. n - 1. Returns an index of z.
template <class V>
inline std::int64_t sample_all(const typename V::Elem* z, const std::int32_t* allowed, std::int64_t n, const NoiseKey& key, float largest,
                               typename V::Elem* group_max) {
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
    std::uint32_t words[16] = {};
    std::int32_t ids[16];
    const int lanes = lanes_left(n, g * 16);
    if (allowed) {
      for (int l = 0; l < lanes; ++l) {
        const auto id = static_cast<std::uint32_t>(allowed[g * 16 + l]);
        words[l] = noise_words<V>(key, id / 4)[id % 4];
      }
    } else {
      for (int quad = 0; quad < 4; ++quad) {
        const Philox::Words w = noise_words<V>(key, static_cast<std::uint32_t>(g * 4 + quad));
        for (int l = 0; l < 4; ++l) words[quad * 4 + l] = w[static_cast<std::size_t>(l)];
      }
    }
    for (int l = 0; l < 16; ++l) ids[l] = static_cast<std::int32_t>(g * 16 + l);
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
inline std::int64_t sample_kept(const typename V::Elem* ranked, const std::uint64_t* order, const std::int32_t* allowed, std::int64_t count,
                                const NoiseKey& key, float largest) {
  BestToken best;
  for (std::int64_t i = 0; i < count; i += 16) {
    if (best.id >= 0 && value_of(ranked[i]) + largest < best.score) break;
    const int lanes = lanes_left(count, i);
    std::uint32_t words[16] = {};
    std::int32_t ids[16] = {};
    for (int l = 0; l < lanes; ++l) {
      const auto index = static_cast<std::uint32_t>(order[i + l]);
      const auto id = allowed ? static_cast<std::uint32_t>(allowed[index]) : index;
      words[l] = noise_words<V>(key, id / 4)[id % 4];
      ids[l] = static_cast<std::int32_t>(index);
    }
    take_best<V>(best, V::load_partial(ranked + i, lanes) + gumbel_noise<V>(words), ids, lanes);
  }
  return best.id;
}

// Sorts as (z descending, index ascending). The index is the low word.
template <class V>
inline std::uint64_t rank_key(float z, std::int64_t index) {
  return static_cast<std::uint64_t>(descending_key<V>(z)) << 32 | static_cast<std::uint32_t>(index);
}

// One row, over n tokens: all of the vocabulary, or the allowed ones gathered.
template <class V>
struct RowLogits {
  const typename V::Elem* raw;
  const typename V::Elem* adjusted;  // the same pointer where nothing is adjusted
  const std::int32_t* allowed;       // null: index and id are the same
  std::int64_t n;
};

template <class V>
inline RowLogits<V> row_logits(const Sample& op, std::int64_t row) {
  using Elem = typename V::Elem;
  const Elem* raw = elements<V>(op.logits) + row * op.logits.stride;
  RowLogits<V> r{raw, raw, nullptr, op.logits.cols};
  if (op.adjusted) {
    const std::int32_t at = ints(op.adjusted_row)[row * op.adjusted_row.stride];
    if (at >= 0) r.adjusted = elements<V>(op.adjusted) + at * op.adjusted.stride;
  }
  const std::int32_t* words = mask_words<V>(op.mask, op.mask_row, row);
  // One buffer per thread and type: what is gathered, then 3 n + groups of sample_row.
  const std::int64_t whole = r.n, room = 3 * whole + (whole + 15) / 16;
  Elem* scratch = thread_scratch<Elem>(static_cast<std::size_t>(room + (words ? 2 * whole : 0)));
  if (!words) return r;
  std::int32_t* ids = thread_scratch<std::int32_t>(static_cast<std::size_t>(whole));
  r.n = allowed_tokens<V>(words, whole, ids);
  r.allowed = ids;
  gather<V>(raw, ids, r.n, scratch + room);
  if (r.adjusted != raw) gather<V>(r.adjusted, ids, r.n, scratch + room + whole);
  r.adjusted = scratch + room + (r.adjusted != raw ? whole : 0);
  r.raw = scratch + room;
  return r;
}

// Writes to Sample::kept which tokens could have been drawn: those of `count` indices `order` (null: all) of the row.
template <class V>
inline void tell_kept(const Sample& op, std::int64_t row, const RowLogits<V>& of, const std::uint64_t* order, std::int64_t count) {
  if (!op.kept) return;
  const std::int32_t at = ints(op.kept_row)[row * op.kept_row.stride];
  if (at < 0) return;
  const std::int64_t vocabulary = op.logits.cols, width = (vocabulary + 31) / 32;
  std::int32_t* out = ints(op.kept) + at * op.kept.stride;
  out[0] = count == vocabulary ? 0 : count == of.n ? 1 : 2;
  out[1] = static_cast<std::int32_t>(count);
  if (out[0] == 0) return;
  const auto id = [&](std::int64_t i) {
    const auto index = order ? static_cast<std::int64_t>(static_cast<std::uint32_t>(order[i])) : i;
    return of.allowed ? of.allowed[index] : static_cast<std::int32_t>(index);
  };
  if (count > width) {
    std::fill(out + 2, out + 2 + width, 0);
    for (std::int64_t i = 0; i < count; ++i) out[2 + id(i) / 32] |= static_cast<std::int32_t>(1u << (id(i) % 32));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) out[2 + i] = id(i);
  if (order) std::sort(out + 2, out + 2 + count);
}

// The index of the token that was chosen for the row, or -1.
template <class V>
inline std::int64_t chosen_index(const Sample& op, std::int64_t row, const RowLogits<V>& of) {
  const std::int32_t token = op.chosen ? ints(op.chosen)[row * op.chosen.stride] : -1;
  if (token < 0 || !of.allowed) return token;
  return std::lower_bound(of.allowed, of.allowed + of.n, token) - of.allowed;
}

template <class V>
inline void sample_row(const Sample& op, std::int64_t row, float largest) {
  using Elem = typename V::Elem;
  const auto number = [row](const View& v) { return elements<V>(v)[row * v.stride]; };
  const auto integer = [row](const View& v) { return ints(v)[row * v.stride]; };
  const RowLogits<V> of = row_logits<V>(op, row);
  const Elem* logits = of.raw;
  const std::int64_t n = of.n;
  const auto put = [&](std::int64_t index, const Elem& raw, const Elem& sampling) {
    ints(op.token)[row * op.token.stride] = index >= 0 && of.allowed ? of.allowed[index] : static_cast<std::int32_t>(index);
    elements<V>(op.raw_logprob)[row * op.raw_logprob.stride] = raw;
    elements<V>(op.sampling_logprob)[row * op.sampling_logprob.stride] = sampling;
  };
  const auto refuse = [&](int bit, const Elem& logprob) {
    ints(op.flags)[row * op.flags.stride] |= 1 << bit;
    put(-1, logprob, logprob);
  };
  if (n == 0) return refuse(4, element<Elem>(0.0f));
  const LogSum<V> raw = log_sum<V>(logits, n, op.maximum_leaves);
  if (!is_finite<V>(raw.log_sum)) return refuse(3, raw.log_sum);
  LogSum<V> whole = raw;  // of z over all n
  if (of.adjusted != of.raw) {
    whole = log_sum<V>(of.adjusted, n, op.maximum_leaves);
    if (!is_finite<V>(whole.log_sum)) return refuse(3, whole.log_sum);
  }
  const Elem temperature = number(op.temperature);
  const float t = value_of(temperature);
  if (!(t > 0.0f)) {
    std::int64_t index = 0;
    while (value_of(of.adjusted[index]) != value_of(whole.maximum)) ++index;
    const Elem logprob = logits[index] - raw.log_sum;
    tell_kept<V>(op, row, of, nullptr, n);
    return put(index, logprob, logprob);
  }
  const std::int64_t groups = (n + 15) / 16;
  Elem* scratch = thread_scratch<Elem>(static_cast<std::size_t>(3 * n + groups));  // row_logits made it large enough
  const Elem* z = of.adjusted;
  if (t != 1.0f) {
    const V divisor = V::set1(temperature);
    for (std::int64_t i = 0; i < n; i += 16) {
      const int lanes = lanes_left(n, i);
      (V::load_partial(of.adjusted + i, lanes) / divisor).store_partial(scratch + i, lanes);
    }
    z = scratch;
    whole = log_sum<V>(z, n, op.maximum_leaves);
    if (!is_finite<V>(whole.log_sum)) return refuse(3, whole.log_sum);
  }
  const NoiseKey key{static_cast<std::uint32_t>(ints(op.seed)[row * op.seed.stride]) |
                         static_cast<std::uint64_t>(static_cast<std::uint32_t>(ints(op.seed)[row * op.seed.stride + 1])) << 32,
                     static_cast<std::uint32_t>(integer(op.position)), static_cast<std::uint32_t>(integer(op.sample)),
                     op.stream ? static_cast<std::uint32_t>(integer(op.stream)) : static_cast<std::uint32_t>(RandomStream::sampling)};
  const std::int64_t chosen = chosen_index<V>(op, row, of);
  const std::int32_t top_k = integer(op.top_k);
  const float top_p = value_of(number(op.top_p));
  const float min_p = op.min_p ? value_of(number(op.min_p)) : 0.0f;
  const std::int64_t ranks = top_k > 0 ? std::min<std::int64_t>(top_k, n) : n;
  if (ranks == n && !(top_p < 1.0f) && !(min_p > 0.0f)) {
    const std::int64_t index = chosen >= 0 ? chosen : sample_all<V>(z, of.allowed, n, key, largest, scratch + 3 * n);
    tell_kept<V>(op, row, of, nullptr, n);
    return put(index, logits[index] - raw.log_sum, z[index] - whole.log_sum);
  }

  std::uint64_t* order = thread_scratch<std::uint64_t>(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) order[i] = rank_key<V>(value_of(z[i]), i);
  if (ranks < n) std::nth_element(order, order + ranks, order + n);
  std::sort(order, order + ranks);
  Elem* ranked = scratch + n;       // z by rank
  Elem* running = scratch + 2 * n;  // exp(z - max), then its chain up to and with each rank
  for (std::int64_t i = 0; i < ranks; ++i) ranked[i] = z[static_cast<std::uint32_t>(order[i])];
  for (std::int64_t i = 0; i < ranks; i += 16) {
    const int lanes = lanes_left(ranks, i);
    exp(V::load_partial(ranked + i, lanes) - V::set1(ranked[0])).store_partial(running + i, lanes);
  }
  std::int64_t likely = 1;  // ranks that min-p keeps
  while (likely < ranks && !(value_of(running[likely]) < min_p)) ++likely;
  Elem sum = element<Elem>(0.0f);
  for (std::int64_t i = 0; i < ranks; ++i) running[i] = sum = sum + running[i];
  std::int64_t kept = ranks;
  if (top_p < 1.0f) {
    const float enough = top_p * value_of(sum);
    kept = 1;
    while (value_of(running[kept - 1]) < enough) ++kept;
  }
  kept = std::min(kept, likely);
  const std::int64_t index = chosen >= 0 ? chosen : sample_kept<V>(ranked, order, of.allowed, kept, key, largest);
  const Elem kept_sum = kept == n ? whole.log_sum : ranked[0] + log_element<V>(running[kept - 1]);
  put(index, logits[index] - raw.log_sum, z[index] - kept_sum);
  tell_kept<V>(op, row, of, order, kept);
}

template <class V>
void sample(const Sample& op, ThreadPool& pool) {
  const float largest = largest_noise<V>();
  pool.run(op.logits.rows, [&](std::int64_t row) { sample_row<V>(op, row, largest); });
}

LOCKSTEP_INSTANTIATE(sample, Sample)

}  // namespace lockstep
